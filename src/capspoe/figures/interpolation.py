"""Between two images, in the pose of the capsule that is on for both."""

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from capspoe.core.gates import place
from capspoe.core.network import Network
from capspoe.errors import InputError
from capspoe.figures.sheet import Row, draw_rows


class Interpolation(NamedTuple):
    capsule: int
    ends: np.ndarray  # (2, H, W, C): the two images
    images: np.ndarray  # (steps, H, W, C): decoded between them

    @property
    def row(self) -> Row:
        return Row(f"capsule {self.capsule}", [self.ends[:1], self.images, self.ends[1:]])


@torch.no_grad()
def interpolate(model: Network, first: Any, second: Any, steps: int = 9) -> Interpolation:
    """Decode the straight line between the poses of two images.

    The routing weights are interpolated as well, so the ends are the reconstructions of the two images.
    """
    x = torch.cat([model.tensor(first), model.tensor(second)])
    if len(x) != 2:
        raise InputError("give two single images")
    up = model.up(x)
    capsule, other = up.winner.tolist()
    if capsule != other:
        raise InputError(
            f"capsule {capsule} is on for the first image and {other} for the second; choose images of one capsule"
        )
    t = torch.linspace(0, 1, steps, device=x.device)[:, None]
    pose = torch.lerp(up.hidden[:1, capsule], up.hidden[1:, capsule], t)
    h = place(pose, torch.full((steps,), capsule, device=x.device), model.top.upper[0])
    c = torch.lerp(up.c[:1], up.c[1:], t[..., None])
    return Interpolation(capsule, model.array(x), model.array(model.down(h, c)))


def distant_pairs(on: np.ndarray, hidden: np.ndarray, count: int = 4) -> list[tuple[int, int]]:
    """For the `count` capsules with most images, two images that differ much without being outliers.

    on (n, J) and hidden (n, J, N) are those of `encode`. Along the first principal component of the capsule's poses,
    the two are the 10% and 90% quantiles.
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


def draw_interpolations(found: list[Interpolation]) -> Figure:
    """A row for each: an image, the decoded steps, the other image."""
    words = "left and right: two images; between them: decoded on the straight line between their poses"
    return draw_rows("From one image to another in one capsule", words, [one.row for one in found], 84)
