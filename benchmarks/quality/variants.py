"""Variants of the capsules above one autoencoder, trained on the same codes and scored alike.

Stage 1 and the clusters of the gate's targets are made once for each data set and shared by all variants and seeds;
a seed changes the initial weights, the order of the images and the random numbers of stage 2. The recognition network
is left out: purity and probe are those of the energy's own gate and poses.
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
from capspoe.config import Config
from capspoe.evaluate.clustering import clustering_scores
from capspoe.evaluate.data import encode_codes
from capspoe.infer.sample import sample
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.prior import CapsulePrior, Sampling
from capspoe.run.train import open_images
from capspoe.training.build import capsule_stage
from capspoe.training.fit import fit
from capspoe.training.prior_stage import PriorStage
from capspoe.training.stage import Training
from capspoe.training.targets import SpectralTargets

SAMPLES = 2000
RIDGE = 1e-3  # penalty of the probe, relative to the variance of a feature


@dataclass(frozen=True)
class KnownTargets:
    """Gate targets that were found before."""

    groups: Int[Tensor, " n"]

    def find(self, training: Training) -> Int[Tensor, " n"]:
        return self.groups


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

    def recognition(self, network: Network) -> dict[str, float]:
        """Purity of the capsules that are on, and a linear probe of all poses with all labels."""
        data = self.frozen.data
        train = encode_codes(network, data.train.codes)
        test = encode_codes(network, data.test.codes)
        clusters = clustering_scores(test.on.argmax(1), data.test.labels, network.top.upper[0], data.classes)
        probe = ridge_probe(
            torch.from_numpy(train.hidden).flatten(1),
            torch.from_numpy(data.train.labels),
            torch.from_numpy(test.hidden).flatten(1),
            torch.from_numpy(data.test.labels),
        )
        return {"purity": round(float(clusters["purity"]), 4), "probe": round(probe, 4)}


def ridge_probe(
    train: Float[Tensor, "n d"], labels: Int[Tensor, " n"], test: Float[Tensor, "k d"], test_labels: Int[Tensor, " k"]
) -> float:
    """Test accuracy of ridge regression to one-hot classes: seconds for all labels, and nothing to tune."""
    mean = train.mean(0)
    scale = (train - mean).std(0).clamp_min(1e-6)
    x = ((train - mean) / scale).double()
    classes = F.one_hot(labels.long()).double()
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
    weights = torch.linalg.solve(gram, x.T @ (classes - classes.mean(0)))
    predicted = (((test - mean) / scale).double() @ weights + classes.mean(0)).argmax(1)
    return float((predicted == test_labels).double().mean())


def mean_and_range(values: Sequence[float]) -> dict[str, Any]:
    """The mean, and half the range across seeds."""
    return {"mean": float(np.mean(values)), "half_range": float(np.ptp(values)) / 2, "seeds": len(values)}
