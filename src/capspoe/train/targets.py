"""The gate's targets: which capsule should be on for each training image."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import damaged
from capspoe.model.network import Network


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


def wanted(network: Network) -> bool:
    """Whether the gate of this network learns targets, rather than annealing."""
    top = network.top
    return top.gate.exclusive and network.config.gate_targets != "none" and top.upper[0] > 1


def find_groups(network: Network, codes: np.ndarray) -> Int[Tensor, " n"] | None:
    """Spectral groups of the codes, or None if they are too few or too similar."""
    from capspoe.train.spectral import spectral_groups  # not above: its libraries take seconds to import

    c = network.config
    groups = spectral_groups(codes, network.top.upper[0], c.neighbours, c.seed)
    return None if groups is None else torch.from_numpy(groups).to(torch.int32)


@torch.no_grad()
def group_means(targets: GateTargets, codes: np.ndarray, network: Network) -> Float[Tensor, "J I M"]:
    """The mean input of the top layer over the images of each group."""
    layer, depth = network.top, len(network.layers) - 1
    total = torch.zeros(layer.upper[0], *layer.lower, dtype=torch.float64, device=network.device)
    count = torch.zeros(layer.upper[0], dtype=torch.float64, device=network.device)
    for start in range(0, len(codes), 512):
        index = np.arange(start, min(start + 512, len(codes)))
        capsule = targets.at(index)
        x = network.layer_input(torch.from_numpy(codes[index]).to(network.device).float(), depth)
        total.index_add_(0, capsule, x.double())
        count.index_add_(0, capsule, torch.ones_like(capsule, dtype=torch.float64))
    return (total / count.clamp_min(1)[:, None, None]).float()
