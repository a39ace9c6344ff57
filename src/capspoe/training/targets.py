"""The gate's targets: which capsule should be on for each training image."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe import distributed
from capspoe.errors import InputError, damaged
from capspoe.model.network import Network
from capspoe.training.codes import code_batch
from capspoe.training.stage import Training


class TargetFinder(Protocol):
    """A way to find the gate's targets."""

    def find(self, training: Training) -> Int[Tensor, " n"] | None:
        """The target capsule of each training image, or None if the images do not form groups."""
        ...


@dataclass(frozen=True)
class SpectralTargets:
    """Spectral clusters of a nearest-neighbour graph.

    neighbours   of each image in the graph
    seed         of k-means
    view         what the graph compares: "codes", a name in `views.FUNCTIONS`, or "auto" for the one that suits the
                 images (the codes, if there are no images)
    kinds        find this many clusters first, and divide each by the appearance of its codes; 0 finds one cluster
                 for each capsule at once
    """

    neighbours: int = 10
    seed: int = 0
    view: str = "auto"
    kinds: int = 0

    def find(self, training: Training) -> Int[Tensor, " n"] | None:
        training.info("clustering the images for the gate's targets")
        from capspoe.training.spectral import (  # not above: they take seconds to import
            MIN_IMAGES,
            spectral_groups,
            two_level_groups,
        )

        capsules = training.network.top.upper[0]
        if training.count < MIN_IMAGES * capsules:
            return None
        points = self.points(training)
        groups: np.ndarray | None
        if self.kinds:
            levels = two_level_groups(points, training.codes, capsules, self.kinds, self.neighbours, self.seed)
            groups = None if levels is None else levels.group
        else:
            groups = spectral_groups(points, capsules, self.neighbours, self.seed)
        if groups is None:
            return None
        return torch.from_numpy(groups).to(torch.int32)

    def points(self, training: Training) -> np.ndarray:
        """What the graph compares, (n, ...)."""
        if self.view == "codes" or (self.view == "auto" and training.images is None):
            return training.codes
        from capspoe.training.views import find_view

        if training.images is None:
            raise InputError(f"the view {self.view!r} needs images; here there are only codes")
        return find_view(self.view, training.images, self.neighbours, self.seed).points(training.images)


class GateTargets(NamedTuple):
    """The target capsule of each training image, and the share of the images that each capsule has."""

    capsule: Int[Tensor, " n"]
    share: Float[Tensor, " J"]

    @classmethod
    def of(cls, groups: Int[Tensor, " n"], network: Network, count: int) -> "GateTargets":
        """Targets from the group of each image; refuses groups that do not fit `count` images."""
        J = network.top.upper[0]
        whole = groups.shape == (count,) and not groups.is_floating_point()
        if not whole or not 0 <= groups.min() <= groups.max() < J:
            raise damaged("the gate's targets do not fit the images")
        share = torch.bincount(groups.cpu(), minlength=J).double() / count
        return cls(groups.to(network.device), share.float().to(network.device))

    def at(self, index: np.ndarray) -> Int[Tensor, " B"]:
        return self.capsule[torch.from_numpy(index).to(self.capsule.device)].long()


def gate_targets(training: Training, finder: TargetFinder | None) -> GateTargets | None:
    """The gate's targets, found by the first stage that asks for them; None if the gate has none.

    All processes must call this together.
    """
    if finder is None:
        return None
    if training.groups is None:
        training.groups = distributed.broadcast_object(lambda: finder.find(training))
    if training.groups is None:
        return None
    return GateTargets.of(training.groups, training.network, training.count)


@torch.no_grad()
def group_means(targets: GateTargets, codes: np.ndarray, network: Network) -> Float[Tensor, "J I M"]:
    """The mean input of the top layer over the images of each group."""
    layer = network.top
    depth = len(network.layers) - 1
    total = torch.zeros(layer.upper[0], *layer.lower, dtype=torch.float64, device=network.device)
    count = torch.zeros(layer.upper[0], dtype=torch.float64, device=network.device)
    for start in range(0, len(codes), 512):
        index = np.arange(start, min(start + 512, len(codes)))
        capsule = targets.at(index)
        x = network.layer_input(code_batch(codes, index, network.device), depth)
        total.index_add_(0, capsule, x.double())
        count.index_add_(0, capsule, torch.ones_like(capsule, dtype=torch.float64))
    return (total / count.clamp_min(1)[:, None, None]).float()
