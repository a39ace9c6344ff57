"""Polarity: whether ink is light on a dark ground, as in MNIST, or dark on a light one, as on paper.

Everything that composes, compares or draws ink works with light ink. Conversions are decided here, once: ink is dark
if more than half of an image's border is light. None of the 20,000 test images of MNIST and Fashion-MNIST is taken
for the other polarity. Commands and the explorer convert pictures, and say so; arrays in Python stay as they are,
with a warning.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from capspoe.infer.cache import cached_on
from capspoe.model.network import Network

PLAIN = 0.9  # share of the border that a plain ground covers, at least
DECIDED = 0.7  # brightness of a pixel that a network has decided is light: an untrained one decodes to grey

Pixels = TypeVar("Pixels", np.ndarray, Tensor)


@dataclass(frozen=True)
class Polarity:
    """The polarity of a network or of a picture. Images in colour have none, and count as light ink."""

    dark: bool = False  # whether ink is dark

    @classmethod
    def of_images(cls, images: Shaped[np.ndarray, "n H W C"], threshold: float = 0.5) -> "Polarity":
        """Ink is dark where the ground is light, and the ground is what most of the border shows."""
        if images.shape[-1] != 1:
            return cls(dark=False)
        return cls(dark=bool(light_border(images, threshold).mean() > 0.5))

    @classmethod
    def of_network(cls, network: Network) -> "Polarity":
        """The polarity of what the capsules decode to at the centre of their poses."""

        @torch.no_grad()
        def decide() -> Polarity:
            capsules, neurons = network.top.upper
            capsule = torch.arange(capsules, device=network.device)
            centre = network.prior.from_white(capsule, torch.zeros(capsules, neurons, device=network.device))
            return cls.of_images(network.array(network.decode_pose(capsule, centre)), DECIDED)

        return cached_on(network, "polarity", decide)

    def ink(self, pixels: Pixels) -> Pixels:
        """Images of this polarity as light ink, or light ink as images of this polarity."""
        return white_of(pixels) - pixels if self.dark else pixels


def light_border(images: Shaped[np.ndarray, "n H W 1"], threshold: float = 0.5) -> Shaped[np.ndarray, " n"]:
    """The share of each image's border that is light."""
    light = images[..., 0] > threshold * white_of(images)
    inside = light[:, 1:-1, 1:-1]
    on_border = light.sum((1, 2)) - inside.sum((1, 2))
    return on_border / (light[0].size - inside[0].size)


@torch.no_grad()
def opposite(network: Network, images: Shaped[np.ndarray, "n H W C"]) -> int:
    """How many images have the other polarity than the network; 0 if its images have no plain ground."""
    if network.image[2] != 1 or not network.codec.has_images:
        return 0

    def plain_ground() -> bool | None:
        """Whether the border of what the capsules decode to is light; None if it is neither light nor dark."""
        capsule = torch.arange(network.top.upper[0], device=network.device)
        centre = network.prior.from_white(capsule, torch.zeros(network.top.upper, device=network.device))
        decoded = network.array(network.decode_pose(capsule, centre))
        if light_border(decoded, DECIDED).mean() > PLAIN:
            return True
        return False if light_border(decoded, 1 - DECIDED).mean() < 1 - PLAIN else None

    light = cached_on(network, "plain ground", plain_ground)
    if light is None:
        return 0
    return int(((light_border(images) > 0.5) != light).sum())


def white_of(pixels: np.ndarray | Tensor) -> int:
    """The value of white: 255 for bytes, otherwise 1."""
    return 255 if pixels.dtype in (np.uint8, torch.uint8) else 1
