"""Images as PNG files, and Figure 3 of the paper: samples of every capsule."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from capspoe.atomic import write_atomic
from capspoe.infer.sample import sample
from capspoe.model.network import Network


def to_rgb_or_grey(images: np.ndarray) -> np.ndarray:
    """Images (..., C) with 1 or 3 channels; any other number of channels is averaged to grey."""
    if images.shape[-1] in (1, 3):
        return images
    return images.mean(-1, keepdims=True).astype(images.dtype)


def to_uint8(images: np.ndarray) -> np.ndarray:
    """[0, 1] to 0 ... 255, clipped and rounded."""
    return (np.clip(images, 0, 1) * 255 + 0.5).astype(np.uint8)


def tile(images: np.ndarray, gap: int = 2, scale: int = 1) -> np.ndarray:
    """(rows, columns, H, W, C) in [0, 1] to one picture on white, uint8 (height, width, 1 or 3)."""
    # A gap below and to the right of each image; the last ones are cut off again.
    margins = ((0, 0), (0, 0), (0, gap), (0, gap), (0, 0))
    tiles = np.pad(to_rgb_or_grey(images), margins, constant_values=1)
    rows, columns, height, width, colours = tiles.shape
    canvas = tiles.swapaxes(1, 2).reshape(rows * height, columns * width, colours)
    picture = to_uint8(canvas[: len(canvas) - gap, : columns * width - gap])
    return picture.repeat(scale, 0).repeat(scale, 1)


def tile_columns(images: np.ndarray, most: int = 32, gap: int = 2, scale: int = 1) -> np.ndarray:
    """`tile`, with the columns in bands below each other, as even as can be, where there are more than `most`."""
    columns = images.shape[1]
    bands = -(-columns // most)
    width = -(-columns // bands)
    # White tiles fill the last band.
    missing = [(0, 0)] * images.ndim
    missing[1] = (0, bands * width - columns)
    full = np.pad(images, missing, constant_values=1)
    pictures = []
    for band in np.split(full, bands, axis=1):
        pictures.append(tile(band, gap, scale))
    space = np.full((4 * gap * scale, *pictures[0].shape[1:]), 255, np.uint8)
    stacked = pictures[:1]
    for picture in pictures[1:]:
        stacked += [space, picture]
    return np.concatenate(stacked)


def png(picture: np.ndarray) -> bytes:
    """A picture (height, width, 1 or 3), uint8, as PNG."""
    buffer = io.BytesIO()
    if picture.shape[-1] == 1:  # Pillow wants grey images without the axis
        picture = picture.squeeze(-1)
    image = Image.fromarray(picture)
    image.save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def write_png(picture: np.ndarray, path: Path) -> None:
    write_atomic(path, png(picture))


def sample_grid(network: Network, rows: int = 4, seed: int = 0) -> np.ndarray:
    """Figure 3 of the paper: one column for each capsule, (rows, J, H, W, C), not cherry-picked."""
    J = network.top.upper[0]
    images, _ = sample(network, rows * J, capsule=list(range(J)), seed=seed)
    return images.reshape(rows, J, *images.shape[1:])


def write_sample_grid(network: Network, path: Path, rows: int = 4, seed: int = 0) -> None:
    write_png(tile_columns(sample_grid(network, rows, seed), scale=2), path)
