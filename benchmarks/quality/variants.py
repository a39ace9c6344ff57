"""Variants of the capsules above one autoencoder, trained on the same codes and scored alike.

Stage 1 and the clusters of the gate's targets are made once for each data set and shared by all variants and seeds;
a seed changes the initial weights, the order of the images and the random numbers of stage 2. The recognition network
is left out: all scores are those of the energy's own gate and poses.

    fid, recall   of samples, drawn as the network draws them
    purity        of the capsules that are on for the test images
    probe         accuracy of ridge regression from all poses, with all labels; "damaged probe" on damaged images
    gate          accuracy if the capsule that is on names the class: its most common label in training. "pairs": two
                  superposed objects, named by the two most probable capsules
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from benchmarks.quality.frozen import FOLDER, FrozenCodes
from benchmarks.quality.scenes.bench import most_common_labels
from benchmarks.quality.scenes.data import Kind, make_scenes
from capspoe.config import Config
from capspoe.data import Images
from capspoe.evaluate.clustering import clustering_scores
from capspoe.evaluate.data import encode_codes
from capspoe.infer.sample import sample
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Encoded, Network
from capspoe.model.prior import CapsulePrior, Sampling
from capspoe.run.train import open_images
from capspoe.training.build import capsule_stage
from capspoe.training.codes import codes_in_memory
from capspoe.training.fit import fit
from capspoe.training.prior_stage import PriorStage
from capspoe.training.stage import Training
from capspoe.training.targets import SpectralTargets

SAMPLES = 5000
DAMAGED: tuple[Kind, ...] = ("hole", "missing side", "fragments")
PAIRS: Kind = "superposed"
SCENES = 2000  # images of each kind of damage, and pairs
CD: dict[str, Any] = {"chains": 0, "learning_rate": 3e-3}  # contrastive divergence, the paper's way of training
RIDGE = 1e-3  # penalty of the probe, relative to the variance of a feature


@dataclass(frozen=True)
class KnownTargets:
    """Gate targets that were found before."""

    groups: Int[Tensor, " n"]

    def find(self, training: Training) -> Int[Tensor, " n"]:
        return self.groups


@dataclass(frozen=True)
class SceneCodes:
    """Codes (n, I, M) of damaged or superposed objects, and the labels (n, k) of the objects."""

    codes: np.ndarray
    labels: np.ndarray


class Workbench:
    """The codes of one autoencoder, the gate's targets, and a judge."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.frozen = FrozenCodes(config, SAMPLES)

    @cached_property
    def targets(self) -> KnownTargets:
        """Spectral clusters of the images, as training finds them; seed 0."""
        config = self.config
        what = f"{config.layers.split(',')[-1]}-{config.view}-{config.neighbours}-{config.kinds}"
        file = FOLDER / f"{config.data}-groups-{what}.npy"
        if not file.exists():
            finder = SpectralTargets(config.neighbours, 0, config.view, config.kinds)
            groups = finder.find(Training(self.frozen.network, open_images(config), lambda: self.frozen.codes))
            assert groups is not None
            FOLDER.mkdir(parents=True, exist_ok=True)
            np.save(file, groups.numpy())
        return KnownTargets(torch.from_numpy(np.load(file)))

    def train(self, config: Config, layer: CapsuleLayer | None = None) -> Network:
        """A network whose capsules were trained by these settings; `layer` replaces that of the settings."""
        built = self.frozen.build(config)
        network: Network = built
        if layer is not None:
            prior = CapsulePrior(*layer.upper, components=config.prior_components)
            sampling = Sampling(config.prior, config.prior_scale, config.logit_scale)
            network = Network(built.codec, [layer], prior, sampling, crop=config.crop)
        stage = capsule_stage(config, network, 0)
        targets = None if stage.targets is None else self.targets
        stage.targets = targets
        fit(network, None, [stage, PriorStage(config.seed, targets)], codes=self.frozen.codes)
        return network

    def generation(self, network: Network) -> dict[str, float]:
        """FID and recall of samples as the network draws them."""
        scores = self.frozen.data.generation(sample(network, SAMPLES, seed=0).images)
        return {"fid": round(scores["fid"], 2), "recall": round(scores["recall"], 3)}

    @cached_property
    def scenes(self) -> dict[Kind, SceneCodes]:
        """Damaged test images and superposed pairs, the same for all variants."""
        test = self.frozen.data.test
        scenes = {}
        for kind in (*DAMAGED, PAIRS):
            made = make_scenes(Images(test.pixels, test.labels), kind, SCENES)
            assert made.labels is not None
            scenes[kind] = SceneCodes(codes_in_memory(self.frozen.network, made.images), made.labels)
        return scenes

    def recognition(self, network: Network) -> dict[str, Any]:
        """What the capsules that are on and a linear probe of all poses tell about clean and damaged images."""
        data = self.frozen.data
        J = network.top.upper[0]
        train = encode_codes(network, data.train.codes)
        test = encode_codes(network, data.test.codes)
        probe = RidgeProbe(flat_poses(train), torch.from_numpy(data.train.labels))
        names = most_common_labels(train.on.argmax(1), data.train.labels, J)
        clusters = clustering_scores(test.on.argmax(1), data.test.labels, J, data.classes)
        gate = {"clean": float((names[test.on.argmax(1)] == data.test.labels).mean())}
        damaged_probe = {}
        for kind, scenes in self.scenes.items():
            encoded = encode_codes(network, scenes.codes)
            k = scenes.labels.shape[1]
            named = names[encoded.on.argsort(1)[:, -k:]]
            gate[kind] = float((np.sort(named, 1) == np.sort(scenes.labels, 1)).all(1).mean())
            if k == 1:
                damaged_probe[kind] = probe.accuracy(flat_poses(encoded), torch.from_numpy(scenes.labels[:, 0]))
        gate["pairs"] = gate.pop(PAIRS)
        return {
            "purity": round(float(clusters["purity"]), 4),
            "probe": round(probe.accuracy(flat_poses(test), torch.from_numpy(data.test.labels)), 4),
            "gate": rounded(gate),
            "damaged probe": rounded(damaged_probe),
        }


def flat_poses(encoded: Encoded) -> Float[Tensor, "n d"]:
    return torch.from_numpy(encoded.hidden).flatten(1)


def rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


class RidgeProbe:
    """Ridge regression from features to one-hot classes: seconds for all labels, and nothing to tune."""

    def __init__(self, features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> None:
        self.mean = features.mean(0)
        self.scale = (features - self.mean).std(0).clamp_min(1e-6)
        x = self.standardised(features)
        classes = F.one_hot(labels.long()).double()
        self.intercept = classes.mean(0)
        gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
        self.weights = torch.linalg.solve(gram, x.T @ (classes - self.intercept))

    def standardised(self, features: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return ((features - self.mean) / self.scale).double()

    def accuracy(self, features: Float[Tensor, "k d"], labels: Int[Tensor, " k"]) -> float:
        predicted = (self.standardised(features) @ self.weights + self.intercept).argmax(1)
        return float((predicted == labels).double().mean())


def mean_and_range(values: Sequence[float]) -> dict[str, Any]:
    """The mean, and half the range across seeds."""
    return {"mean": float(np.mean(values)), "half_range": float(np.ptp(values)) / 2, "seeds": len(values)}
