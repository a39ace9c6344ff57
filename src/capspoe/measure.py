"""Thickness, slant, width and height of what an image shows: bright strokes or shapes on a dark ground.

Pure functions of images (n, H, W) or (n, H, W, C) in [0, 1]; each gives (n,) numbers, and 0 for a blank image.
No threshold is involved, so they change smoothly with the image, and none depends on how bright the ink is.
"""

from typing import Any

import numpy as np

from capspoe.errors import InputError

_BLANK = 1e-3  # mean brightness below which there is nothing to measure
_TAIL = 0.025  # share of the ink left out at each end of a width or height
_CHUNK = 512


def thickness(images: Any) -> np.ndarray:
    """Stroke width in pixels: twice the area over the perimeter.

    A stroke of width t and length L has area t L and perimeter 2 L. The perimeter is the total variation of the
    image: by the coarea formula, the mean perimeter of the shapes that all thresholds would cut out.
    """
    return _measured(images, _thickness)


def slant(images: Any) -> np.ndarray:
    """Lean in degrees, from the second moments of the ink; positive when the top leans to the right."""
    return _measured(images, lambda ink: np.degrees(np.arctan(_shear(ink))))


def width(images: Any) -> np.ndarray:
    """Horizontal extent in pixels, the slant taken out, so that leaning is not counted as width."""
    return _measured(images, _width)


def height(images: Any) -> np.ndarray:
    """Vertical extent in pixels."""
    return _measured(images, lambda ink: _extent(*_points(ink)[1:]))


MEASURES = {"thickness": thickness, "slant": slant, "width": width, "height": height}


def on_dark_ground(images: Any) -> np.ndarray:
    """Whether the border is dark, (n,): otherwise the measures mean nothing, as for photographs."""
    ink = _ink(images)
    border = np.ones(ink.shape[1:], bool)
    border[1:-1, 1:-1] = False
    return ink[:, border].mean(-1) < 0.15


def _ink(images: Any) -> np.ndarray:
    """Brightness, (n, H, W)."""
    array = np.asarray(images)
    if array.ndim not in (3, 4):
        raise InputError(f"images must have shape (n, H, W) or (n, H, W, C), not {array.shape}")
    array = array.astype(np.float64) / 255 if array.dtype == np.uint8 else array.astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError("images contain NaN or infinite values")
    return array.mean(-1) if array.ndim == 4 else array


def _measured(images: Any, measure: Any) -> np.ndarray:
    ink = np.clip(_ink(images), 0, None)
    result = np.zeros(len(ink))
    for start in range(0, len(ink), _CHUNK):
        chunk = ink[start : start + _CHUNK]
        shown = chunk.mean((1, 2)) > _BLANK
        if shown.any():
            result[start : start + _CHUNK][shown] = measure(chunk[shown])
    return result


def _thickness(ink: np.ndarray) -> np.ndarray:
    padded = np.pad(ink, ((0, 0), (1, 1), (1, 1)))
    across, down = np.diff(padded, axis=2), np.diff(padded, axis=1)
    inner_across = np.stack([across[:, 1:-1, 1:], across[:, 1:-1, :-1]])  # differences to the right and left
    inner_down = np.stack([down[:, 1:, 1:-1], down[:, :-1, 1:-1]])  # below and above
    # The length of the gradient, averaged over the four pairs of one-sided differences: none is preferred.
    gradient = np.hypot(inner_across[:, None], inner_down[None]).mean((0, 1))
    return 2 * ink.sum((1, 2)) / np.maximum(gradient.sum((1, 2)), 1e-12)


def _points(ink: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y (upwards) and weight of every pixel, (n, H W), x and y from the centre of the ink."""
    n, H, W = ink.shape
    weight = ink.reshape(n, -1) / ink.sum((1, 2))[:, None]
    y, x = (axis.reshape(-1) for axis in np.mgrid[0:H, 0:W].astype(np.float64))
    return x - (weight @ x)[:, None], (weight @ y)[:, None] - y, weight


def _shear(ink: np.ndarray) -> np.ndarray:
    """How far the ink moves to the right for each pixel upwards."""
    x, y, weight = _points(ink)
    return (weight * x * y).sum(-1) / np.maximum((weight * y * y).sum(-1), 1e-6)


def _width(ink: np.ndarray) -> np.ndarray:
    x, y, weight = _points(ink)
    shear = np.clip(_shear(ink), -1.5, 1.5)[:, None]  # a flat stroke has no slant worth the name
    return _extent(x - shear * y, weight)


def _extent(position: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Between the outer quantiles of the ink, enlarged so that an even bar gives its exact length.

    A pixel is a stretch of ink one pixel long, here four points.
    """
    position = np.concatenate([position + offset for offset in (-0.375, -0.125, 0.125, 0.375)], -1)
    weight = np.tile(weight / 4, 4)
    order = np.argsort(position, axis=-1, kind="stable")
    position = np.take_along_axis(position, order, -1)
    weight = np.take_along_axis(weight, order, -1)
    middle = np.cumsum(weight, -1) - weight / 2  # the share of ink up to each point
    ends = [[np.interp(q, m, p) for q in (_TAIL, 1 - _TAIL)] for m, p in zip(middle, position, strict=True)]
    low, high = np.array(ends).T
    return (high - low) / (1 - 2 * _TAIL)
