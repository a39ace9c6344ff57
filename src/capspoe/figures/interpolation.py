"""From one image to another through the capsule that is on for both."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from capspoe.errors import InputError
from capspoe.figures.panels import QUIET, Sheet
from capspoe.model import CapsulePoE, check_capsule
from capspoe.sampling import switched_on_states
from capspoe.validate import check_count


class Interpolation(NamedTuple):
    capsule: int
    ends: np.ndarray  # (2, H, W, C): the two images themselves
    images: np.ndarray  # (steps, H, W, C): what the capsule paints from the one to the other


@torch.no_grad()
def interpolate(
    model: CapsulePoE, first: Any, second: Any, capsule: int | None = None, steps: int = 9
) -> Interpolation:
    """Paint the way between two images in the numbers of one capsule.

    The capsule's numbers and its routing weights go in a straight line; the ends are the reconstructions of the
    two images. `capsule` is the one that is on for both unless given.
    """
    check_count("steps", steps, least=2)
    x = torch.cat([model.tensor(first), model.tensor(second)])
    if len(x) != 2:
        raise InputError("interpolation goes between two single images")
    c, z = model.top(model.lift(model.autoencoder.encode(x)))
    if capsule is None:
        on = model.top.on_given_visible(z).argmax(-1).tolist()
        if on[0] != on[1]:
            raise InputError(
                f"capsule {on[0]} is on for the first image and {on[1]} for the second; choose two images of one "
                "capsule, or name the capsule"
            )
        capsule = int(on[0])
    check_capsule("capsule", capsule, model.top.upper[0])
    t = torch.linspace(0, 1, steps, device=x.device)[:, None]
    hidden = torch.lerp(*model.top.hidden_given_visible(z)[:, capsule], t)  # type: ignore[call-overload]
    h = switched_on_states(model, torch.full((steps,), capsule, device=x.device), hidden)
    weights = None if model.top.iterations == 1 else torch.lerp(c[0][None], c[1][None], t[..., None])
    return Interpolation(capsule, model.array(x), model.array(model.paint(h, weights)))


def distant_pairs(on: np.ndarray, hidden: np.ndarray, count: int = 4) -> list[tuple[int, int]]:
    """For the `count` capsules that claim most images, two that are different and yet not freaks.

    on (n, J) and hidden (n, J, N) are what `encode` gives. Along the direction in which the capsule's images differ
    most, the two stand a tenth from either end.
    """
    winner = on.argmax(-1)
    pairs = []
    for j in np.argsort(-np.bincount(winner, minlength=on.shape[1]), kind="stable")[:count]:
        rows = np.flatnonzero(winner == j)
        if len(rows) < 2:
            continue
        h = hidden[rows, j] - hidden[rows, j].mean(0)
        order = np.argsort(h @ np.linalg.svd(h, full_matrices=False)[2][0], kind="stable")
        tenth = len(rows) // 10
        pairs.append((int(rows[order[tenth]]), int(rows[order[-1 - tenth]])))
    return pairs


def write_interpolations(found: list[Interpolation], path: Path) -> None:
    """A row each: an image, the way, the other image."""
    steps, H, W, _ = found[0].images.shape
    scale = max(1, round(84 / max(H, W)))
    pitch_x, pitch_y, left, top, gap = W * scale + 4, H * scale + 14, 110, 86, 22
    sheet = Sheet(left + (steps + 2) * pitch_x + 2 * gap + 16, top + len(found) * pitch_y + 8)
    sheet.text(20, 24, "From one image to another through their capsule", 18, weight="bold")
    words = "left and right: two real images; between them: what the capsule paints on the straight way"
    sheet.text(20, 48, words, 12, QUIET)
    last = left + (steps + 1) * pitch_x + 2 * gap
    sheet.text(left + W * scale / 2, top - 12, "image", 11, QUIET, ha="center")
    sheet.text(last + W * scale / 2, top - 12, "image", 11, QUIET, ha="center")
    for r, way in enumerate(found):
        y = top + r * pitch_y
        sheet.text(20, y + H * scale / 2, f"capsule {way.capsule}", 13, weight="bold")
        sheet.image(left, y, way.ends[0], scale)
        for k in range(steps):
            sheet.image(left + gap + (k + 1) * pitch_x, y, way.images[k], scale)
        sheet.image(last, y, way.ends[1], scale)
    sheet.write(path)
