"""Polarity: whether ink is light on a dark ground, as in MNIST, or dark on a light one, as on paper.

Everything that composes, compares or draws ink works with light ink. Conversions are decided here, once.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor

from capspoe.infer.cache import cached_on
from capspoe.model.network import Network

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
        light = images > threshold * white_of(images)
        inside = light[:, 1:-1, 1:-1]
        light_border = light.sum() - inside.sum()
        border = light.size - inside.size
        return cls(dark=bool(light_border > border / 2))

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

    def match(self, images: Shaped[np.ndarray, "n H W C"]) -> Shaped[np.ndarray, "n H W C"]:
        """Images of any polarity in this one."""
        if images.shape[-1] != 1:
            return images
        return self.ink(Polarity.of_images(images).ink(images))


def white_of(pixels: np.ndarray | Tensor) -> int:
    """The value of white: 255 for bytes, otherwise 1."""
    return 255 if pixels.dtype in (np.uint8, torch.uint8) else 1
