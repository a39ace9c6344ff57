"""`capspoe evaluate RUN`: every score of a run and of the baselines, in RUN/evaluation.json and as a table."""

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from capspoe import checkpoint, distributed, hub
from capspoe.encoding import open_for
from capspoe.errors import DataError, DivergedError, RunError
from capspoe.evaluate import baselines
from capspoe.evaluate.ablation import ablations
from capspoe.evaluate.cache import Cache, fingerprint
from capspoe.evaluate.instantiation import instantiation
from capspoe.evaluate.likelihood import likelihood
from capspoe.evaluate.material import Made, Material, codes_of, hidden_of
from capspoe.evaluate.probe import linear_probe
from capspoe.evaluate.progress import Teller
from capspoe.evaluate.realism import NEIGHBOURS
from capspoe.evaluate.scoring import Yardstick, yardstick_for
from capspoe.evaluate.specialise import alive, class_entropy, contingency, specialisation
from capspoe.evaluate.table import print_table
from capspoe.model import CapsulePoE
from capspoe.validate import check_count

DARK = 40  # of 255: images whose median pixel is brighter have no dark ground
LEAST = 20  # images drawn, and images trained on, below which scores say nothing
LEAST_TEST = 10  # test images: twice the neighbours that precision and recall look at


@dataclass(frozen=True)
class Settings:
    """How much an evaluation looks at."""

    quick: bool = False
    samples: int = 2000
    neighbours: int = NEIGHBOURS
    gibbs: int = 100
    probe_images: int = 60_000
    traversal_starts: int = 3
    ais_steps: int = 5000
    ais_chains: int = 100
    seed: int = 0
    ablate: bool = False


FULL = Settings()
QUICK = Settings(True, samples=1000, probe_images=10_000, traversal_starts=2, ais_steps=1000, ais_chains=50)


def settings_for(quick: bool, samples: int | None, seed: int, ablate: bool = False) -> Settings:
    chosen = dataclasses.replace(QUICK if quick else FULL, seed=seed, ablate=ablate)
    if samples is not None:
        check_count("samples", samples, least=LEAST)
        chosen = dataclasses.replace(chosen, samples=samples)
    return chosen


def evaluate(
    run: str | Path,
    quick: bool = False,
    samples: int | None = None,
    seed: int = 0,
    quiet: bool = False,
    ablate: bool = False,
) -> dict[str, Any]:
    """Score a finished run and write RUN/evaluation.json. What was computed before is not computed again.

    Of several processes each computes some of the parts, and the first writes.
    """
    folder = Path(run)
    settings = settings_for(quick, samples, seed, ablate)
    whole = "all-ablated" if ablate else "all"
    with distributed.joined():
        with distributed.together():
            cache = opened_cache(folder, settings)
        result: dict[str, Any] | None = distributed.of_first(lambda: cache.get(whole))
        if result is None:
            with distributed.together():
                evaluation = Evaluation(CapsulePoE.load(folder), folder, settings, cache, quiet)
                evaluation.check_enough()
            result = evaluation.everything()
            with distributed.together():
                if distributed.first():
                    cache.put(whole, result)
        with distributed.together():
            if distributed.first():
                with checkpoint.writing(folder):
                    content = json.dumps(result, indent=2) + "\n"
                    checkpoint.write_atomically(folder / "evaluation.json", content.encode())
    return result


def opened_cache(folder: Path, settings: Settings) -> Cache:
    """What was computed before for the weights of a finished run; refuses one that is not finished."""
    checkpoint.open_run(folder)
    saved = hub.newest(folder)
    if saved.state.stage != "done":
        raise RunError(
            f"{folder} is not finished (it stands at {saved.state.stage!r}); train it to its end first"
        )
    parts_alike = dataclasses.asdict(dataclasses.replace(settings, ablate=False))
    return Cache(folder / "evaluation-cache", fingerprint(saved.weights, parts_alike))


def command(run: Path, quick: bool, samples: int | None, seed: int, ablate: bool) -> None:
    """What `capspoe evaluate` does."""
    with distributed.joined():
        result = evaluate(run, quick, samples, seed, ablate=ablate)
        if not distributed.first():
            return
    print_table(result, Console())
    print(run / "evaluation.json")


class Evaluation:
    """One run, measured part by part; each part is kept as soon as it is finished."""

    def __init__(
        self, model: CapsulePoE, folder: Path, settings: Settings, cache: Cache, quiet: bool = False
    ) -> None:
        self.model, self.folder, self.settings, self.cache = model, folder, settings, cache
        self.teller = Teller(len(self.parts()), quiet or not distributed.first())
        self.material = Material(model, settings.samples, settings.seed, self.teller.told)

    def everything(self) -> dict[str, Any]:
        began = time.monotonic()
        done = self.computed(self.parts())
        rows = [row for name in done for row in (done[name] if isinstance(done[name], list) else [])]
        return {
            "data": {
                "name": self.model.config.data.data,
                "image": list(self.model.image),
                "labels": self.labelled,
            },
            "settings": dataclasses.asdict(self.settings),
            "feature_net": done.get("feature net"),
            "rows": rows,
            "specialisation": done["specialisation"],
            "instantiation": done["instantiation"],
            "probe": {**done["linear probe"], "hidden numbers": done["capspoe"][0]["probe"]}
            if self.labelled
            else None,
            "likelihood": done["likelihood"],
            "seconds": round(time.monotonic() - began, 1),
        }

    def computed(self, parts: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Every part, from the cache or made and kept there; the processes share them out.

        Several processes begin with the last parts, which take longest, so that none waits long for another.
        """
        numbered = list(enumerate(parts, 1))
        mine = {}
        with self.teller.bar:
            for number, name in distributed.taken(numbered if distributed.world() == 1 else numbered[::-1]):
                with distributed.alone(), self.teller.part(number, name):
                    mine[name] = self.cache.or_make(name.replace(" ", "-"), parts[name])
        done = {name: value for each in distributed.gathered(mine) for name, value in each.items()}
        return {name: done[name] for name in parts}

    @cached_property
    def labelled(self) -> bool:
        """Whether there are classes to tell apart."""
        labels = [open_for(self.model, None, split).labels for split in ("train", "test")]
        return all(some is not None and len(np.unique(some)) > 1 for some in labels)

    def check_enough(self) -> None:
        """Refuse data of which the scores would say nothing, or not exist."""
        limit, J = self.model.config.data.limit, self.model.top.upper[0]
        train, test = (len(open_for(self.model, None, split)) for split in ("train", "test"))
        train = train if limit is None else min(train, limit)
        for kind, count, least in (("training", train, max(LEAST, J)), ("test", test, LEAST_TEST)):
            if count < least:
                raise DataError(
                    f"{count} {kind} images are too few to score {J} capsules by; it takes {least} or more"
                )

    def parts(self) -> dict[str, Callable[[], Any]]:
        """The parts of this evaluation, in order; lists of rows go into the table."""
        always: dict[str, Callable[[], Any]] = {
            "specialisation": self.specialisation,
            "instantiation": self.instantiation,
            "likelihood": self.likelihood,
        }
        if not self.labelled:
            return always
        c, model = self.model.config.capsules, self.model
        fast: dict[str, Callable[[], Any]] = {
            "feature net": lambda: self.yardstick.trained.info,
            "floors": self.floors,
            "capspoe": self.own_rows,
            **always,
            "linear probe": self.probes,
            "k-means and PCA": lambda: self.baseline("k-means + PCA on the codes", baselines.kmeans_pca),
            "mixture": lambda: self.baseline("Gaussian mixture on the codes", baselines.mixture),
        }
        without = ablations(self) if self.settings.ablate else {}
        if self.settings.quick:
            return fast | without
        others: dict[str, Callable[[], Any]] = {}
        if (c.gate, c.neurons) != ("winner", "binary"):
            rate = model.config.training.lr * (10 if c.neurons == "gaussian" else 1)
            others["binary neurons"] = lambda: self.variant_rows(
                "binary neurons with the gate", neurons="binary", gate="winner", lr=rate
            )
        routed = 3 if c.iterations == 1 else 1
        name = "three routing iterations" if routed == 3 else "one routing iteration"
        others[name] = lambda: self.variant_rows(name, iterations=routed)
        return {
            **fast,
            **others,
            **without,
            "RBM": lambda: self.baseline("RBM on the codes", baselines.rbm),
            "VAE": lambda: self.baseline("convolutional VAE", baselines.vae),
            "BernoulliRBM": lambda: self.baseline("BernoulliRBM on pixels", baselines.pixel_rbm),
            "literal": self.literal_rows,
        }

    @property
    def yardstick(self) -> Yardstick:
        return yardstick_for(self.model, self.model.config.data.data, self.teller.told)

    # Rows of the table.

    def row(self, name: str, make: Callable[[], Made], probe: bool = True) -> dict[str, Any]:
        """A model's samples, groups and features, scored; what it has not is None."""
        began = time.monotonic()
        made = make()
        row: dict[str, Any] = {"name": name, **self.yardstick.score(made.images, self.settings.neighbours)}
        labels = self.material.test_labels
        row["purity"] = row["nmi"] = row["probe"] = None
        if made.winner is not None and labels is not None:
            row |= specialisation(made.winner, labels, made.groups, self.yardstick.classes)
        if made.features is not None and probe:
            row["probe"] = self.probe(made.features)
        row["seconds"] = round(time.monotonic() - began, 1)
        return row

    def baseline(self, name: str, make: Callable[[Material], Made]) -> list[dict[str, Any]]:
        return [self.row(name, lambda: make(self.material))]

    def floors(self) -> list[dict[str, Any]]:
        """What no model can be much better than: training images, themselves and through the network."""
        some = self.yardstick.train_some(self.settings.samples)
        reconstruct = self.model.reconstruct
        return [
            self.row("floor: training images", lambda: Made(some)),
            self.row("floor: autoencoder reconstructions", lambda: Made(reconstruct(some, "autoencoder"))),
            self.row("floor: capsule reconstructions", lambda: Made(reconstruct(some))),
        ]

    def own_rows(self) -> list[dict[str, Any]]:
        """The run itself, by its three ways to generate."""
        model, gibbs = self.model, self.settings.gibbs
        fitted = f"after {gibbs} Gibbs steps"
        return [
            self.row("capspoe", lambda: baselines.of_capsules(model, self.material)),
            self.row(
                "capspoe, the paper's sampling",
                lambda: baselines.of_capsules(model, self.material, "standard"),
                probe=False,
            ),
            self.row(
                f"capspoe, {fitted}",
                lambda: baselines.of_capsules(model, self.material, gibbs=gibbs),
                probe=False,
            ),
        ]

    def variant_rows(self, name: str, **changes: Any) -> list[dict[str, Any]]:
        """The run with other capsules on the same codes."""
        began = time.monotonic()
        try:
            other = baselines.variant(self.model, self.material.train_codes, self.teller.told, **changes)
        except DivergedError as error:
            return [{"name": name, "failed": str(error)}]
        spent = time.monotonic() - began
        rows = [self.row(name, lambda: baselines.of_capsules(other, self.material, "fitted"))]
        rows[0]["seconds"] = round(rows[0]["seconds"] + spent, 1)
        rows.append(
            self.row(
                f"{name}, the paper's sampling",
                lambda: baselines.of_capsules(other, self.material, "standard"),
                probe=False,
            )
        )
        return rows

    def literal_rows(self) -> list[dict[str, Any]]:
        """The paper to the letter, autoencoder included."""
        name, began = "the paper to the letter", time.monotonic()
        try:
            other = baselines.train_literal(self.model, self.cache.folder / f"literal-{self.cache.key}")
        except DivergedError as error:
            return [{"name": name, "failed": str(error)}]
        spent = time.monotonic() - began

        def make() -> Made:
            made = baselines.of_capsules(
                other, self.material, own_codes=codes_of(other, self.material.test_pixels)
            )
            return made._replace(features=lambda pixels, _: hidden_of(other, codes_of(other, pixels))[1])

        row = self.row(name, make)
        row["seconds"] = round(row["seconds"] + spent, 1)
        return [row]

    # The other parts.

    def probe(self, features: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> float | None:
        """Linear probe on the features of a choice of the training images."""
        m = self.material
        if m.train_labels is None or m.test_labels is None:
            return None
        n = len(m.train_pixels)
        some = np.linspace(0, n - 1, min(n, self.settings.probe_images)).astype(int)
        train = features(m.train_pixels[some], m.train_codes[some])
        test = features(m.test_pixels, m.test_codes)
        return linear_probe(train, m.train_labels[some], test, m.test_labels)

    def probes(self) -> dict[str, Any]:
        """What else a linear classifier could be given."""
        return {
            "raw pixels": self.probe(lambda pixels, _: pixels.reshape(len(pixels), -1) / np.float32(255)),
            "autoencoder codes": self.probe(lambda _, codes: codes.reshape(len(codes), -1)),
            "hidden numbers times P(on)": self.probe(lambda _, codes: hidden_of(self.model, codes, True)[1]),
        }

    def specialisation(self) -> dict[str, Any]:
        """The winning capsule against the labels, and the classes of each capsule's samples."""
        model, J = self.model, self.model.top.upper[0]
        winner, _ = hidden_of(model, self.material.test_codes)
        labels = self.material.test_labels
        if not self.labelled or labels is None:
            table = contingency(winner, np.zeros(len(winner), np.int64), J, 1)
            return {"capsules": J, "alive": alive(table), "use": (table[:, 0] / len(winner)).tolist()}
        classes = self.yardstick.classes
        each = max(10, self.settings.samples // J)
        drawn = model.sample(each * J, capsule=list(range(J)), seed=self.settings.seed)
        table = contingency(winner, labels, J, classes)
        entropy = class_entropy(self.yardstick.see(drawn.images).labels, drawn.capsule, J, classes)
        return {
            **specialisation(winner, labels, J, classes),
            "use": (table.sum(1) / len(winner)).tolist(),
            "commonest_class": table.argmax(1).tolist(),
            "table": table.tolist(),
            "sample_class_entropy": entropy,
            "mean_sample_class_entropy": float(np.mean([e for e in entropy if e is not None])),
        }

    def instantiation(self) -> dict[str, Any]:
        """Thickness, slant, width and height, where there is a shape on a dark ground to measure."""
        starts, seed = self.settings.traversal_starts, self.settings.seed
        test = self.material.test_pixels[:2000]
        if np.median(test) > DARK:
            return {"skipped": "thickness, slant, width and height need bright shapes on a dark ground"}
        found = {"axes": instantiation(self.model, test, "axes", starts, seed)}
        if not self.settings.quick:
            found["neurons"] = instantiation(self.model, test, "neurons", starts, seed)
        return found

    def likelihood(self) -> dict[str, Any]:
        s, m = self.settings, self.material
        with torch.random.fork_rng(devices=[]):
            return likelihood(self.model, m.train_codes, m.test_codes, s.ais_steps, s.ais_chains, s.seed)
