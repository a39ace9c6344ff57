"""Images put together into one picture file."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from capspoe.durable import write_atomically, writing


def visible(images: np.ndarray) -> np.ndarray:
    """Images (..., C) as a person can see them: with other than 1 or 3 channels by the mean of these, in grey."""
    return images if images.shape[-1] in (1, 3) else images.mean(-1, keepdims=True).astype(images.dtype)


def tile(images: np.ndarray, gap: int = 2, scale: int = 1) -> np.ndarray:
    """(rows, columns, H, W, C) in [0, 1] to one picture on white, uint8 (height, width, 1 or 3)."""
    images = visible(images)
    rows, columns, height, width, colours = images.shape
    canvas = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap, colours), np.float32)
    for r in range(rows):
        for c in range(columns):
            y, x = r * (height + gap), c * (width + gap)
            canvas[y : y + height, x : x + width] = images[r, c]
    picture = (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)
    return picture.repeat(scale, 0).repeat(scale, 1)


def write_picture(picture: np.ndarray, path: Path) -> None:
    """Write a picture (height, width, C) as PNG; the folder is made if need be."""
    buffer = io.BytesIO()
    Image.fromarray(picture.squeeze(-1) if picture.shape[-1] == 1 else picture).save(
        buffer, "PNG", optimize=True
    )
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
