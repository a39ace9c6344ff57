"""An image and what comes back: through the autoencoder, through its capsule, and through all capsules."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from capspoe.contrastive import switched_on
from capspoe.figures.panels import QUIET, Sheet
from capspoe.model import CapsulePoE


class Reconstruction(NamedTuple):
    rows: tuple[str, ...]  # what the rows of images are
    images: np.ndarray  # (4, n, H, W, C)
    error: np.ndarray  # (4, n): mean squared error of the pixels
    on: np.ndarray  # (n,): the capsule that is on


ROWS = ("image", "autoencoder", "its capsule", "all capsules")


@torch.no_grad()
def reconstructions(model: CapsulePoE, images: Any) -> Reconstruction:
    """The images, and what three ways back make of them.

    "its capsule" is the most probable one alone. "all capsules" is what the sum of them all paints, as the energy
    without a gate has it: with the gate no capsule was trained for that, and it shows.
    """
    parts: list[list[np.ndarray]] = [[] for _ in ROWS]
    on = []
    for x in model._chunks(images):
        code = model.autoencoder.encode(x)
        c, z = model.top(model.lift(code))
        h = model.top.hidden_given_visible(z)
        weights = None if model.top.iterations == 1 else c
        winner = model.top.on_given_visible(z).argmax(-1)
        alone = switched_on(h, winner)
        ways = (x, model.autoencoder.decode(code), model.paint(alone, weights), model.paint(h, weights))
        for part, way in zip(parts, ways, strict=True):
            part.append(model.array(way))
        on.append(winner.cpu().numpy())
    painted = np.stack([np.concatenate(part) for part in parts])
    error = np.square(painted - painted[:1]).mean((2, 3, 4))
    return Reconstruction(ROWS, painted, error, np.concatenate(on))


def write_reconstructions(found: Reconstruction, path: Path) -> None:
    """A column an image, with its error below each way back."""
    rows, n, H, W, _ = found.images.shape
    scale = max(1, round(84 / max(H, W)))
    pitch_x, pitch_y, left, top = W * scale + 8, H * scale + 26, 136, 74
    sheet = Sheet(left + n * pitch_x + 16, top + rows * pitch_y + 10)
    sheet.text(20, 24, "Images and what comes back", 18, weight="bold")
    sheet.text(20, 48, "below each: mean squared error of its pixels", 12, QUIET)
    for r in range(rows):
        y = top + r * pitch_y
        sheet.text(20, y + H * scale / 2 - 9, found.rows[r], 13, weight="bold")
        mean = "" if r == 0 else f"error {found.error[r].mean():.4f}"
        sheet.text(20, y + H * scale / 2 + 11, mean, 11, QUIET)
        for k in range(n):
            x = left + k * pitch_x
            sheet.image(x, y, found.images[r, k], scale)
            words = f"capsule {found.on[k]}" if r == 0 else f"{found.error[r, k]:.4f}"
            sheet.text(x + W * scale / 2, y + H * scale + 12, words, 11, QUIET, ha="center")
    sheet.write(path)
