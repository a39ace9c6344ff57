"""`capspoe evaluate RUN`: scores of a run and of baselines.

Each part is cached as soon as it is finished.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from capspoe.atomic import write_atomic
from capspoe.errors import DivergedError, RunError
from capspoe.evaluate import baselines
from capspoe.evaluate.clustering import class_entropy, contingency
from capspoe.evaluate.data import EvaluationData
from capspoe.evaluate.groups import Models, linear_models
from capspoe.evaluate.likelihood import likelihood
from capspoe.evaluate.measures import DARK, instantiation
from capspoe.evaluate.probe import other_probes, probe
from capspoe.infer.sample import sample
from capspoe.infer.traverse import Basis
from capspoe.model.checks import check_count
from capspoe.run.bundled import output_folder
from capspoe.run.checkpoint import DONE, json_bytes
from capspoe.run.model import CapsulePoE

VERSION = 7  # increment when the definition of a score changes, so that cached scores are not used

Parts = dict[str, Callable[[], Any]]


class Settings(NamedTuple):
    quick: bool = False
    samples: int = 2000  # in a set
    sets: int = 5
    neighbours: int = 5
    probe_images: int = 60_000
    traversal_starts: int = 3
    seed: int = 0


FULL = Settings()
QUICK = Settings(True, samples=1000, probe_images=10_000, traversal_starts=2)


def evaluate(
    run: str | Path,
    quick: bool = False,
    samples: int | None = None,
    seed: int = 0,
    quiet: bool = False,
    ablate: bool = False,
    device: str = "cpu",
) -> dict[str, Any]:
    """Score a finished run, write RUN/evaluation.json and return its content.

    Parameters
    ----------
    run : the run folder
    quick : fewer samples, and only the baselines that train in seconds
    samples, seed : number of images in each of the five sets that each model generates, and their seed
    quiet : no progress
    ablate : also train the run with one ingredient switched off at a time
    device : where the network runs: "cpu", "cuda", "mps", or "auto"
    """
    folder = Path(run)
    settings = QUICK if quick else FULL
    settings = settings._replace(seed=seed)
    if samples is not None:
        check_count("samples", samples, minimum=20)
        settings = settings._replace(samples=samples)
    result = Evaluation(folder, settings, device).result(ablate, quiet)
    write_atomic(output_folder(folder) / "evaluation.json", json_bytes(result))
    return result


def quick_scores(
    network: CapsulePoE, samples: int = FULL.samples, seed: int = 0, sets: int = FULL.sets
) -> dict[str, Any]:
    """The scores to watch while improving a network: of its samples and of its winning capsules.

    Parameters
    ----------
    network : the network of a run
    samples, seed : number of images in each set of samples, and the seed of all
    sets : number of sets, whose scores are averaged
    """
    data = EvaluationData(network, samples * sets, seed, sets)
    winner = network.encode(data.test.pixels).on.argmax(1)
    images = sample(network, data.samples, seed=seed).images
    return data.generation(images) | data.clustering(winner)


def cached(path: Path, make: Callable[[], Any]) -> Any:
    """The content of a JSON file, which is computed first if it is missing or invalid."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        value = make()
    write_atomic(path, json_bytes(value))
    return value


class Evaluation:
    """A finished run, evaluated part by part."""

    def __init__(self, folder: Path, settings: Settings, device: str = "cpu") -> None:
        self.network = CapsulePoE.load(folder, device)
        self.settings = settings
        if self.network.stage != DONE:
            raise RunError(f"{folder} is not finished; resume its training first")
        total = settings.samples * settings.sets
        self.data = EvaluationData(self.network, total, settings.seed, settings.sets)
        # Cached parts are named by a digest: other weights or settings, other names.
        digest = hashlib.sha256(json.dumps([VERSION, settings._asdict()]).encode())
        for name, weights in sorted(self.network.state_dict().items()):
            digest.update(name.encode() + weights.cpu().contiguous().numpy().tobytes())
        self.folder = output_folder(folder) / "evaluation-cache"
        self.key = digest.hexdigest()[:20]

    def path(self, name: str) -> Path:
        """Where a part is cached."""
        plain = re.sub(r"[^a-z0-9]+", "-", name.lower())
        return self.folder / f"{plain}-{self.key}"

    def result(self, ablate: bool = False, quiet: bool = False) -> dict[str, Any]:
        began = time.monotonic()
        parts = self.parts(ablate)
        done: dict[str, Any] = {}
        console = Console(stderr=True, quiet=quiet, highlight=False)
        for number, name in enumerate(parts, 1):
            console.print(f"{number}/{len(parts)} {name}", markup=False)
            with console.status(""):
                done[name] = cached(self.path(name).with_suffix(".json"), parts[name])
        rows: list[dict[str, Any]] = []
        for part in done.values():
            if isinstance(part, list):
                rows.extend(part)
        if self.data.labelled:
            done["probe"]["poses"] = next(row["probe"] for row in rows if row["name"] == "capspoe")
        scores = ("feature_net", "clustering", "instantiation", "probe", "likelihood")
        return {
            "data": {
                "name": self.network.config.data,
                "image": list(self.network.image),
                "labels": self.data.labelled,
            },
            "settings": self.settings._asdict() | {"ablate": ablate},
            "rows": rows,
            **{name: done.get(name) for name in scores},
            "seconds": round(time.monotonic() - began, 1),
        }

    def parts(self, ablate: bool) -> Parts:
        """What to compute, in order; lists are rows of the table."""
        data = self.data
        s = self.settings
        scores: Parts = {
            "clustering": self.clustering,
            "instantiation": self.instantiation,
            "likelihood": lambda: likelihood(data),
        }
        if not data.labelled:
            return scores
        models = [*linear_models(data), *baselines.variants(data, s.quick, ablate)]
        if not s.quick:
            models += [make(data) for make in baselines.SLOW]
            literal = partial(baselines.literal, data, self.path("literal"))
            models.append({"the paper to the letter": literal})
        return {
            "feature_net": lambda: data.net.info,
            "capspoe": lambda: self.rows(baselines.own(data)),
            **scores,
            "probe": lambda: other_probes(data, s.probe_images),
            **{next(iter(group)): partial(self.rows, group) for group in models},
        }

    def rows(self, models: Models) -> list[dict[str, Any]]:
        """Scores of models; if one diverges, those after it are left out."""
        rows: list[dict[str, Any]] = []
        for name, make in models.items():
            began = time.monotonic()
            try:
                images, winner, features = make()
            except DivergedError as error:
                return [*rows, {"name": name, "failed": str(error)}]
            row: dict[str, Any] = {"name": name}
            row |= self.data.generation(images, self.settings.neighbours)
            if winner is not None:
                row |= self.data.clustering(winner)
            if features is not None:
                row["probe"] = probe(self.data, features, self.settings.probe_images)
            row["seconds"] = round(time.monotonic() - began, 1)
            rows.append(row)
        return rows

    def instantiation(self) -> dict[str, Any]:
        """Scores by principal axes and, unless quick, by single neurons."""
        s = self.settings
        test = self.data.test.pixels[:2000]
        # Without a dark background the measures mean nothing.
        if np.median(test) > DARK:
            return {}
        bases: list[Basis] = ["principal"]
        if not s.quick:
            bases.append("neurons")
        return {b: instantiation(self.network, test, b, s.traversal_starts, s.seed) for b in bases}

    def clustering(self) -> dict[str, Any]:
        """The winning capsule against the labels, and the classes of each capsule's samples."""
        data = self.data
        J = self.network.top.upper[0]
        winner = self.network.encode(data.test.pixels).on.argmax(1)
        scores = data.clustering(winner)
        if not data.labelled:
            return {name: scores[name] for name in ("alive", "capsules")}
        count = J * max(10, self.settings.samples // J)
        drawn = sample(self.network, count, list(range(J)), seed=self.settings.seed)
        # Samples have no labels: the feature net says which class they look like.
        _, predicted = data.net.see(drawn.images)
        entropy = class_entropy(contingency(drawn.capsule, predicted, J, data.classes))
        return {
            **scores,
            "table": contingency(winner, data.test.labels, J, data.classes).tolist(),
            "sample_class_entropy": entropy.tolist(),
            "mean_sample_class_entropy": float(entropy.mean()),
        }
