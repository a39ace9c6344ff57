"""Thickness, slant, width and height of bright shapes on a dark background, and their control.

Measures take images (n, H, W) or (n, H, W, C) and return (n,) numbers, 0 for blank images. They
have no threshold, so they change smoothly with the image, and do not depend on brightness. A
dimension of the pose controls a measure if moving it changes that measure steadily.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from capspoe.errors import InputError
from capspoe.infer.traverse import Basis, decode_poses, traverse
from capspoe.model.network import Network

BLANK = 1e-3  # mean brightness below which there is nothing to measure
TAIL = 0.025  # share of the brightness that width and height leave out at each end
DARK = 40  # of 255; images with a brighter median pixel have no dark background
POSITIONS = np.linspace(-2.0, 2.0, 9)  # of a traversal, in standard deviations
CONTROLS = 0.9  # rank correlation from which a dimension controls a measure ...
EFFECT = 0.5  # ... if the traversal changes it by this many standard deviations of the test images

Measure = Callable[[Any], np.ndarray]


def measure(function: Measure) -> Measure:
    """Turn a function of the brightness (n, H, W) of visible images into one of any images."""

    @wraps(function)
    def measured(images: Any) -> np.ndarray:
        grey = np.clip(_grey(images), 0, None)
        result = np.zeros(len(grey))
        visible = grey.mean((1, 2)) > BLANK
        if visible.any():
            result[visible] = function(grey[visible])
        return result

    return measured


@measure
def thickness(grey: Any) -> np.ndarray:
    """Stroke width in pixels: twice the area over the perimeter.

    A stroke of width t and length L has area t L and perimeter 2 L. The perimeter is the total
    variation of the image: by the coarea formula, the mean perimeter of its level sets.
    """
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)))
    across = np.diff(padded, axis=2)
    down = np.diff(padded, axis=1)
    # Differences to the right and left, and below and above.
    sides = np.stack([across[:, 1:-1, 1:], across[:, 1:-1, :-1]])
    ends = np.stack([down[:, 1:, 1:-1], down[:, :-1, 1:-1]])
    # Averaging the gradient's length over all four pairs of one-sided differences prefers no
    # direction.
    gradient = np.hypot(sides[:, None], ends[None]).mean((0, 1))
    return 2 * grey.sum((1, 2)) / np.maximum(gradient.sum((1, 2)), 1e-12)


@measure
def slant(grey: Any) -> np.ndarray:
    """Slant in degrees, from the second moments; positive when the top leans to the right."""
    return np.degrees(np.arctan(_points(grey)[3]))


@measure
def width(grey: Any) -> np.ndarray:
    """Horizontal extent in pixels, after removing the slant."""
    x, y, weight, shear = _points(grey)
    shear = np.clip(shear, -1.5, 1.5)[:, None]  # a flat stroke has no meaningful slant
    return _extent(x - shear * y, weight)


@measure
def height(grey: Any) -> np.ndarray:
    """Vertical extent in pixels."""
    _, y, weight, _ = _points(grey)
    return _extent(y, weight)


MEASURES: dict[str, Measure] = {
    "thickness": thickness,
    "slant": slant,
    "width": width,
    "height": height,
}


def on_dark_ground(images: Any) -> np.ndarray:
    """Whether the border is dark, (n,); otherwise, as for photographs, the measures mean nothing."""
    grey = _grey(images)
    border = np.ones(grey.shape[1:], bool)
    border[1:-1, 1:-1] = False
    return grey[:, border].mean(-1) < 0.15


def rank_correlation(values: np.ndarray) -> np.ndarray:
    """Spearman's correlation of the last axis with its order; 0 where nothing changes."""
    # Not above: figures and explorer do without it, and start sooner.
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2
    order = np.arange(values.shape[-1]) - (values.shape[-1] - 1) / 2
    norm = np.sqrt((ranks**2).sum(-1) * (order**2).sum())
    return np.divide(ranks @ order, norm, out=np.zeros(norm.shape), where=norm > 0)


def instantiation(
    network: Network,
    test: np.ndarray,
    basis: Basis,
    starts: int,
    seed: int,
) -> dict[str, Any]:
    """For each measure, the share of capsules with a dimension that controls it, and the best ones."""
    deviation = {}
    best_of_capsules: dict[str, list[dict[str, float]]] = {}
    for name, measure in MEASURES.items():
        deviation[name] = max(float(measure(test).std()), 1e-6)
        best_of_capsules[name] = []
    for capsule in range(network.top.upper[0]):
        z = traverse(network, capsule, basis, POSITIONS, starts, seed)
        images = decode_poses(network, capsule, z)
        for name, measure in MEASURES.items():
            values_NST = measure(images.reshape(-1, *images.shape[3:])).reshape(images.shape[:3])
            best_of_capsules[name].append(best_dimension(values_NST, deviation[name]))
    return {name: summary(rows) for name, rows in best_of_capsules.items()}


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """One measure over all capsules."""
    strength = np.abs([row["correlation"] for row in rows])
    effect = np.abs([row["effect"] for row in rows])
    controlled = (strength >= CONTROLS) & (effect >= EFFECT)
    return {
        "share_of_capsules": float(controlled.mean()),
        "mean_correlation": float(strength.mean()),
        "mean_effect": float(effect.mean()),
        "capsules": rows,
    }


def best_dimension(values_NST: np.ndarray, deviation: float) -> dict[str, float]:
    """The dimension with the strongest correlation among those with an effect, or else among all."""
    # The mean with the sign: a dimension must push the same way from all starts.
    correlation_N = rank_correlation(values_NST).mean(1)
    effect_N = np.abs((values_NST[..., -1] - values_NST[..., 0]).mean(1)) / deviation
    # A dimension without an effect counts a thousandth: it wins only if none has one.
    best = int(np.argmax(np.abs(correlation_N) * ((effect_N >= EFFECT) + 1e-3)))
    return {
        "dimension": best,
        "correlation": float(correlation_N[best]),
        "effect": float(effect_N[best]),
    }


def _grey(images: Any) -> np.ndarray:
    """Brightness, (n, H, W)."""
    array = np.asarray(images)
    if array.ndim not in (3, 4):
        raise InputError(f"images must have shape (n, H, W) or (n, H, W, C), not {array.shape}")
    brightest = 255 if array.dtype == np.uint8 else 1
    array = array.astype(np.float64) / brightest
    if not np.isfinite(array).all():
        raise InputError("images contain NaN or infinite values")
    if array.ndim == 4:
        return array.mean(-1)
    return array


def _points(grey: np.ndarray) -> tuple[np.ndarray, ...]:
    """Positions x, y and weight of every pixel, (n, H W), and the shear dx / dy, (n,).

    Positions are relative to the centre of mass, y upwards.
    """
    n, H, W = grey.shape
    weight = grey.reshape(n, -1) / grey.sum((1, 2))[:, None]
    row, column = np.mgrid[0:H, 0:W].astype(np.float64).reshape(2, -1)
    x = column - (weight @ column)[:, None]
    y = (weight @ row)[:, None] - row
    shear = (weight * x * y).sum(-1) / np.maximum((weight * y * y).sum(-1), 1e-6)
    return x, y, weight, shear


def _extent(position: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Distance between the outer quantiles, enlarged so that a uniform bar gives its exact length."""
    # A pixel is one pixel long, so it counts as four points.
    quarters = (-0.375, -0.125, 0.125, 0.375)
    position = np.concatenate([position + offset for offset in quarters], -1)
    order = np.argsort(position, axis=-1, kind="stable")
    position = np.take_along_axis(position, order, -1)
    weight = np.take_along_axis(np.tile(weight / 4, 4), order, -1)
    # The share of the brightness up to each point.
    share = np.cumsum(weight, -1) - weight / 2
    extent = np.empty(len(position))
    for k, (share_up_to, at) in enumerate(zip(share, position, strict=True)):
        low, high = np.interp((TAIL, 1 - TAIL), share_up_to, at)
        extent[k] = high - low
    return extent / (1 - 2 * TAIL)
