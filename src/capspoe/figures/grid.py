"""Figure 3 of the paper: images that each capsule generates."""

from pathlib import Path

import numpy as np

from capspoe.model import CapsulePoE
from capspoe.pictures import tile, write_picture
from capspoe.sampling import sample


def grid(model: CapsulePoE, rows: int = 4, seed: int = 0) -> np.ndarray:
    """Figure 3 of the paper: a column a capsule, drawn together, not picked: (rows, J, H, W, C)."""
    J = model.top.upper[0]
    images, _ = sample(model, rows * J, capsule=list(range(J)), seed=seed)
    return images.reshape(rows, J, *images.shape[1:])


def write_grid(model: CapsulePoE, path: Path, rows: int = 4, seed: int = 0) -> None:
    write_picture(tile(grid(model, rows, seed), scale=2), path)
