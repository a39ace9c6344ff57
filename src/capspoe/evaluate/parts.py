"""The parts of an evaluation: which there are, in which order, and how they are computed once and put together."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from capspoe import distributed
from capspoe.evaluate import baselines
from capspoe.evaluate.ablation import ablations
from capspoe.evaluate.cache import Cache
from capspoe.evaluate.instantiation import instantiation
from capspoe.evaluate.likelihood import likelihood
from capspoe.evaluate.material import Material, hidden_of
from capspoe.evaluate.probe import probes
from capspoe.evaluate.progress import Teller
from capspoe.evaluate.rows import Rows
from capspoe.evaluate.settings import Settings
from capspoe.evaluate.specialise import alive, class_entropy, contingency, specialisation
from capspoe.model import CapsulePoE

DARK = 40  # of 255: images whose median pixel is brighter have no dark ground

Parts = dict[str, Callable[[], Any]]


class Evaluation:
    """One run, measured part by part; each part is kept as soon as it is finished."""

    def __init__(self, model: CapsulePoE, settings: Settings, cache: Cache, quiet: bool = False) -> None:
        self.model, self.settings, self.cache = model, settings, cache
        self.teller = Teller(quiet or not distributed.first())
        self.material = Material(model, settings.samples, settings.seed, self.teller.told)
        self.rows = Rows(self.material, settings)
        self.parts = self.chosen_parts()

    def everything(self) -> dict[str, Any]:
        began = time.monotonic()
        done = self.computed(self.parts)
        labelled = self.material.labelled
        return {
            "data": {
                "name": self.model.config.data.data,
                "image": list(self.model.image),
                "labels": labelled,
            },
            "settings": dataclasses.asdict(self.settings),
            "feature_net": done.get("feature net"),
            "rows": [row for part in done.values() if isinstance(part, list) for row in part],
            "specialisation": done["specialisation"],
            "instantiation": done["instantiation"],
            "probe": {**done["linear probe"], "hidden numbers": done["capspoe"][0]["probe"]}
            if labelled
            else None,
            "likelihood": done["likelihood"],
            "seconds": round(time.monotonic() - began, 1),
        }

    def computed(self, parts: Parts) -> dict[str, Any]:
        """Every part, from the cache or made and kept there; the processes share them out.

        Several processes begin with the last parts, which take longest, so that none waits long for another.
        """
        numbered = list(enumerate(parts, 1))
        mine = {}
        with self.teller.bar:
            for number, name in distributed.taken(numbered if distributed.world() == 1 else numbered[::-1]):
                with distributed.alone(), self.teller.part(f"{number}/{len(parts)} {name}"):
                    mine[name] = self.cache.or_make(name.replace(" ", "-"), parts[name])
        done = {name: value for each in distributed.gathered(mine) for name, value in each.items()}
        return {name: done[name] for name in parts}

    def chosen_parts(self) -> Parts:
        """What to compute, in order; lists of rows go into the table."""
        always: Parts = {
            "specialisation": self.specialisation,
            "instantiation": self.instantiation,
            "likelihood": self.likelihood,
        }
        if not self.material.labelled:
            return always
        rows = self.rows
        fast: Parts = {
            "feature net": lambda: rows.yardstick.trained.info,
            "floors": rows.floors,
            "capspoe": rows.own,
            **always,
            "linear probe": lambda: probes(self.material, self.settings.probe_images),
            "k-means and PCA": lambda: rows.baseline("k-means + PCA on the codes", baselines.kmeans_pca),
            "mixture": lambda: rows.baseline("Gaussian mixture on the codes", baselines.mixture),
        }
        without = ablations(rows) if self.settings.ablate else {}
        if self.settings.quick:
            return fast | without
        return {
            **fast,
            **self.other_capsules(),
            **without,
            "RBM": lambda: rows.baseline("RBM on the codes", baselines.rbm),
            "VAE": lambda: rows.baseline("convolutional VAE", baselines.vae),
            "BernoulliRBM": lambda: rows.baseline("BernoulliRBM on pixels", baselines.pixel_rbm),
            "literal": lambda: rows.literal(self.cache.folder / f"literal-{self.cache.key}"),
        }

    def other_capsules(self) -> Parts:
        """The run with binary neurons and the gate, unless it has them, and with routing switched off, or on."""
        config, rows = self.model.config, self.rows
        c = config.capsules
        others: Parts = {}
        if (c.gate, c.neurons) != ("winner", "binary"):
            rate = config.training.lr * (10 if c.neurons == "gaussian" else 1)
            others["binary neurons"] = lambda: rows.variant(
                "binary neurons with the gate", neurons="binary", gate="winner", lr=rate
            )
        routed = 3 if c.iterations == 1 else 1
        name = "three routing iterations" if routed == 3 else "one routing iteration"
        others[name] = lambda: rows.variant(name, iterations=routed)
        return others

    def specialisation(self) -> dict[str, Any]:
        """The winning capsule against the labels, and the classes of each capsule's samples."""
        model, J = self.model, self.model.top.upper[0]
        winner, _ = hidden_of(model, self.material.test_codes)
        labels = self.material.test_labels
        if not self.material.labelled or labels is None:
            table = contingency(winner, np.zeros(len(winner), np.int64), J, 1)
            return {"capsules": J, "alive": alive(table), "use": (table[:, 0] / len(winner)).tolist()}
        yardstick = self.rows.yardstick
        classes = yardstick.classes
        each = max(10, self.settings.samples // J)
        drawn = model.sample(each * J, capsule=list(range(J)), seed=self.settings.seed)
        table = contingency(winner, labels, J, classes)
        entropy = class_entropy(yardstick.see(drawn.images).labels, drawn.capsule, J, classes)
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
