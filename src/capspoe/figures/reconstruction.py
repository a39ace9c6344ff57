"""Images and their reconstructions: by the autoencoder, by the capsule that is on, and by all."""

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from capspoe.figures.sheet import Row, draw_rows
from capspoe.model.gates import only
from capspoe.model.network import Network

ROWS = ("image", "autoencoder", "its capsule", "all capsules")


class Reconstruction(NamedTuple):
    images: np.ndarray  # (4, n, H, W, C), as ROWS names them
    error: np.ndarray  # (4, n): mean squared error of the pixels
    on: np.ndarray  # (n,): the capsule that is on

    def rows(self, count: int) -> list[Row]:
        """The first `count` images; the mean errors are over all."""
        capsules = [f"capsule {j}" for j in self.on[:count]]
        rows = [Row(ROWS[0], [self.images[0, :count]], captions=capsules)]
        for name, images, error in zip(ROWS[1:], self.images[1:], self.error[1:], strict=True):
            errors = [f"{e:.4f}" for e in error[:count]]
            rows.append(Row(name, [images[:count]], f"error {error.mean():.4f}", errors))
        return rows


@torch.no_grad()
def reconstructions(model: Network, images: Any) -> Reconstruction:
    """Images through the network and back, with the routing weights of the way up.

    "its capsule" is the most probable one alone. "all capsules" is the sum of all, as the energy
    without a gate has it. With the gate no capsule was trained for that sum; it is there for
    comparison.
    """
    parts = []
    on = []
    for x in model.chunks(images):
        up = model.up(x)
        alone = model.down(only(up.hidden, up.winner), up.c, on=up.winner)
        ways = (x, model.codec.decode(up.code), alone, model.down(up.hidden, up.c))
        parts.append(np.stack([model.array(way) for way in ways]))
        on.append(up.winner.cpu().numpy())
    decoded = np.concatenate(parts, 1)
    error = np.square(decoded - decoded[:1]).mean((2, 3, 4))
    return Reconstruction(decoded, error, np.concatenate(on))


def draw_reconstructions(reconstruction: Reconstruction, count: int) -> Figure:
    """A column for each image, with the error below each reconstruction."""
    mean = f"its mean over {len(reconstruction.on):,} images"
    words = f"below: the mean squared error of the pixels; left: {mean}"
    return draw_rows("Images and their reconstructions", words, reconstruction.rows(count), 84)
