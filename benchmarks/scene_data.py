"""Scenes with several objects, or with damage, from a data set of single objects; the truth is kept."""

from typing import Literal, NamedTuple, get_args

import numpy as np

from capspoe.data import Images
from capspoe.errors import InputError

Kind = Literal["superposed", "shifted", "side by side", "three", "occluded", "hole", "missing side", "fragments"]
OPAQUE = 26  # brightness (of 255) from which a pixel hides what is behind it


class Scenes(NamedTuple):
    """Images (n, H, W, C), the objects in each (n, k, H, W, C), the front one first, and their labels (n, k)."""

    images: np.ndarray
    objects: np.ndarray
    labels: np.ndarray | None


def make_scenes(images: Images, kind: str, count: int, seed: int = 0, shift: int = 2) -> Scenes:
    """Scenes by seed; objects of a scene have different labels, if there are labels.

    Parameters
    ----------
    kind : "superposed" (two objects, the maximum of both), "shifted" (each moved by up to `shift` pixels too),
        "side by side" (on a canvas half as wide again), "three" (at once), "occluded" (the first in front), or one
        object with a "hole" near the middle (a third of each side), a "missing side" (two fifths of it) or
        "fragments" of two others
    """
    if kind not in get_args(Kind):
        raise InputError(f"there is no kind of scene {kind!r}; choose one of {', '.join(get_args(Kind))}")
    rng = np.random.default_rng([seed, get_args(Kind).index(kind)])
    k = {"three": 3, "hole": 1, "missing side": 1, "fragments": 1}.get(kind, 2)
    index = different(rng, images.labels, len(images.pixels), (count, k))
    objects = images.pixels[index]
    n, _, H, W, _ = objects.shape
    if kind == "shifted":
        moves = rng.integers(-shift, shift + 1, (n * k, 2))
        moved_objects = [
            moved(o, *by) for o, by in zip(objects.reshape(n * k, *objects.shape[2:]), moves, strict=True)
        ]
        objects = np.stack(moved_objects).reshape(objects.shape)
    if kind == "side by side":
        wide = np.zeros((n, k, H, W + W // 2, objects.shape[-1]), np.uint8)
        wide[:, 0, :, :W], wide[:, 1, :, -W:] = objects[:, 0], objects[:, 1]
        objects = wide
    scene = objects.max(1)
    if kind == "occluded":
        scene = np.where(objects[:, 0].max(-1, keepdims=True) >= OPAQUE, objects[:, 0], objects[:, 1])
    for row in scene if k == 1 else ():
        if kind == "hole":
            row[a_ninth(rng, H, W, middle=True)] = 0
        elif kind == "missing side":
            np.rot90(row, int(rng.integers(4)))[: 2 * H // 5] = 0
        else:
            for other in images.pixels[rng.integers(0, len(images.pixels), 2)]:
                where = a_ninth(rng, H, W)
                row[where] = np.maximum(row[where], other[where])
    return Scenes(scene, objects, None if images.labels is None else images.labels[index])


def different(rng: np.random.Generator, labels: np.ndarray | None, count: int, shape: tuple[int, int]) -> np.ndarray:
    """Indices of images, those of a row with different labels."""
    index = rng.integers(0, count, shape)
    if labels is not None:
        if len(np.unique(labels)) < shape[1]:
            raise InputError(f"scenes of {shape[1]} objects need images with as many different labels")
        for column in range(1, shape[1]):
            while (same := (labels[index[:, column, None]] == labels[index[:, :column]]).any(1)).any():
                index[same, column] = rng.integers(0, count, same.sum())
    return index


def a_ninth(rng: np.random.Generator, H: int, W: int, middle: bool = False) -> tuple[slice, slice]:
    """A patch of a third of each side, anywhere or near the middle, where the objects are."""
    low, high = (0.25, 0.75) if middle else (0, 1)
    top, left = (int(rng.uniform(low, high) * (side - side // 3 + 1)) for side in (H, W))
    return slice(top, top + H // 3), slice(left, left + W // 3)


def moved(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """The image moved by some pixels; what leaves it is lost, what enters is 0."""
    H, W = image.shape[:2]
    out = np.zeros_like(image)
    out[max(down, 0) : H + min(down, 0), max(right, 0) : W + min(right, 0)] = image[
        max(-down, 0) : H + min(-down, 0), max(-right, 0) : W + min(-right, 0)
    ]
    return out
