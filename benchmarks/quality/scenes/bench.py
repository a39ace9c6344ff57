"""A trained run, its data, and what its parts say about a scene."""

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capspoe.data import load
from capspoe.errors import InputError
from capspoe.infer.explain import Search
from capspoe.model.recognition import Recognised
from capspoe.model.routing import route
from capspoe.run.model import CapsulePoE
from capspoe.training.codes import codes_in_memory
from capspoe.training.spectral import spectral_groups
from capspoe.training.views import find_view

NAMED = 4_000  # training images that name the capsules
GROUPED = 15_000  # training images of the linear baselines


class Bench:
    """A run and its data. The run must have a recognition network."""

    def __init__(self, run: Path, seed: int) -> None:
        self.seed = seed
        self.model = CapsulePoE.load(run).requires_grad_(False)
        if self.model.recognition is None:
            raise InputError(f"{run} has no recognition network; train it with --recognition-steps")
        self.train = load(self.model.config.data, "train")
        self.test = load(self.model.config.data, "test")

    @property
    def shape(self) -> tuple[int, int]:
        """J capsules of N neurons."""
        return self.model.top.upper

    @cached_property
    def names(self) -> np.ndarray:
        """The most common label of the training images for which each capsule is on."""
        on = self.model.encode(self.train.pixels[:NAMED]).on.argmax(1)
        return most_common_labels(on, self.train.labels[:NAMED], self.shape[0])

    def tensor(self, images: np.ndarray) -> Tensor:
        return self.model.tensor(images)

    def route(
        self, images: np.ndarray, normalize: str = "lower", iterations: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """P(on) and the poses z by the gate, with another way of routing."""
        top = self.model.top
        x = self.model.up(self.tensor(images)).x
        scale = 1.0
        if normalize == "upper":
            scale = top.upper[0] / top.lower[0]  # so that uniform routing gives the same z
        iterations = iterations or top.iterations
        z = route(x - top.mu, scale * top.W, iterations, normalize, top.agreement, top.sharpness).z + top.b
        return top.on_probability(z, x), z

    def recognise(self, x: Tensor) -> Recognised:
        """What the recognition network says of images (B, C, H, W)."""
        chunks = [self.model.recognition(chunk).log_odds for chunk in x.split(Search.chunk_size)]
        return Recognised(torch.cat(chunks), self.model.recognition.couplings)

    def blank_logits(self, x: Tensor) -> Tensor:
        """Logits of the code of a blank image, (1, I, M)."""
        return torch.logit(self.model.up(torch.zeros_like(x[:1])).x, eps=1e-4)

    def starts(self, z: Tensor) -> Tensor:
        """Two whitened poses of each capsule for the search to start from: its mean, and the given z (B, J, N)."""
        J, _ = self.shape
        capsule = torch.arange(J).repeat(len(z))
        white = self.model.prior.to_white(capsule, z.flatten(0, 1)).view(z.shape)
        return torch.stack([torch.zeros_like(white), white.clamp(-2, 2)], 2)

    @cached_property
    def codes(self) -> np.ndarray:
        """The codes of training images, (n, I, M)."""
        return codes_in_memory(self.model, self.train.pixels[:GROUPED])

    @cached_property
    def groups(self) -> np.ndarray:
        """Spectral groups of the images of these codes, in the view of the run, as many as capsules."""
        config = self.model.config
        pixels = self.train.pixels[:GROUPED]
        points = find_view(config.view, pixels, config.neighbours, config.seed).points(pixels)
        return spectral_groups(points, self.shape[0], config.neighbours, config.seed)

    @cached_property
    def group_names(self) -> np.ndarray:
        """The most common label of each group."""
        return most_common_labels(self.groups, self.train.labels[:GROUPED], self.shape[0])


def most_common_labels(group: np.ndarray, labels: np.ndarray, groups: int) -> np.ndarray:
    """The most common label of each group; 0 for an empty one."""
    names = []
    for number in range(groups):
        counts = np.bincount(labels[group == number], minlength=1)
        names.append(counts.argmax())
    return np.array(names)
