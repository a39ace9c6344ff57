"""Values as the page takes them: pictures as data URLs, short numbers, the name of a run."""

from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from capspoe.run.pictures import png, tile


def run_name(folder: Path) -> str:
    """What the page calls the run: its folder, with the folder above if that is only called "run"."""
    folder = folder.resolve()
    if folder.name == "run":
        return f"{folder.parent.name}/run"
    return folder.name


def in_the_order_of(last: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """Two objects (2, H, W, C) in the order of those in the last frame: their brightness may have changed."""
    swapped = frame[::-1]
    if np.square(swapped - last).sum() < np.square(frame - last).sum():
        return swapped
    return frame


def data_url(picture: np.ndarray) -> str:
    return "data:image/png;base64," + b64encode(png(picture)).decode()


def sheet(*rows: Sequence[np.ndarray] | np.ndarray) -> str:
    """Rows of images (H, W, C) as one picture without gaps."""
    return data_url(tile(np.array(rows), gap=0))


def rounded(values: Tensor, digits: int = 4) -> list[float]:
    return [round(value, digits) for value in values.tolist()]
