"""Thickness, slant, width and height of bright strokes on a dark ground; (n, H, W[, C]) in [0, 1] to (n,)."""

import numpy as np


def thickness(images: np.ndarray) -> np.ndarray:
    """Stroke width in pixels: twice the area over the perimeter, which is the image's total variation."""
    ink = np.pad(_ink(images), ((0, 0), (1, 1), (1, 1)))
    across, down = np.diff(ink, axis=2), np.diff(ink, axis=1)
    sides = [
        np.hypot(across[:, 1:-1, left : left + ink.shape[2] - 2], down[:, top : top + ink.shape[1] - 2, 1:-1])
        for left in (0, 1)
        for top in (0, 1)
    ]
    return 2 * ink.sum((1, 2)) / np.maximum(np.mean(sides, 0).sum((1, 2)), 1e-12)


def slant(images: np.ndarray) -> np.ndarray:
    """Lean in degrees, from second moments; positive when the top leans to the right."""
    x, y, weight = _points(_ink(images))
    return np.degrees(np.arctan(_shear(x, y, weight)))


def width(images: np.ndarray) -> np.ndarray:
    """Horizontal extent in pixels, the slant taken out: that of an even bar with the same second moment."""
    x, y, weight = _points(_ink(images))
    return _extent(x - np.clip(_shear(x, y, weight), -1.5, 1.5)[:, None] * y, weight)


def height(images: np.ndarray) -> np.ndarray:
    """Vertical extent in pixels, in the same sense."""
    _, y, weight = _points(_ink(images))
    return _extent(y, weight)


MEASURES = {"thickness": thickness, "slant": slant, "width": width, "height": height}


def _ink(images: np.ndarray) -> np.ndarray:
    array = images.astype(np.float64) / 255 if images.dtype == np.uint8 else images.astype(np.float64)
    return array.mean(-1) if array.ndim == 4 else array


def _points(ink: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y (upwards) from the centre of the ink and the ink's share of every pixel, (n, H W)."""
    n, H, W = ink.shape
    weight = ink.reshape(n, -1) / np.maximum(ink.sum((1, 2)), 1e-12)[:, None]
    y, x = (axis.reshape(-1) for axis in np.mgrid[0:H, 0:W].astype(np.float64))
    return x - (weight @ x)[:, None], (weight @ y)[:, None] - y, weight


def _shear(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return (weight * x * y).sum(-1) / np.maximum((weight * y * y).sum(-1), 1e-6)


def _extent(position: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """An even bar over L pixels has variance (L^2 - 1) / 12."""
    return np.sqrt(12 * (weight * position * position).sum(-1) + (weight.sum(-1) > 0))
