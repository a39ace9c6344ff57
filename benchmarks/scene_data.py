"""Scenes with several objects, or with damage, from a data set of single objects, and the scores of an answer."""

import itertools
from typing import Literal, NamedTuple, get_args

import numpy as np
from sklearn.metrics import adjusted_rand_score

from capspoe.data import Images
from capspoe.errors import InputError

Kind = Literal["superposed", "shifted", "side by side", "three", "occluded", "hole", "missing side", "fragments"]
OPAQUE = 26  # brightness (of 255) from which a pixel hides what is behind it


class Scenes(NamedTuple):
    """Images (n, H, W, C), the objects in each (n, k, H, W, C), the front one first, and their labels (n, k)."""

    images: np.ndarray
    objects: np.ndarray
    labels: np.ndarray | None


class Answer(NamedTuple):
    """Labels (n, k) in any order and, for models that draw, the objects (n, k, H, W, C) and owners (n, k, H, W)."""

    labels: np.ndarray
    objects: np.ndarray | None = None
    owner: np.ndarray | None = None
    proposed: np.ndarray | None = None  # (n, 9)


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


def score(scenes: Scenes, answer: Answer) -> dict[str, float]:
    """All labels right; the error of each object alone; ARI and intersection over union of the pixels."""
    n, k = scenes.labels.shape
    scores = {"right": float((np.sort(answer.labels, 1) == np.sort(scenes.labels, 1)).all(1).mean())}
    if answer.proposed is not None:
        held = (answer.proposed[:, None] == scenes.labels[:, :, None]).any(2).all(1)
        scores["among nine"] = float(held.mean())
    if answer.objects is None:
        return scores
    truth = scenes.objects / 255
    orders = [list(order) for order in itertools.permutations(range(k))]
    errors = np.stack([np.square(answer.objects[:, o] - truth).mean((1, 2, 3, 4)) for o in orders])
    best = np.array(orders)[errors.argmin(0)]
    found = answer.objects[np.arange(n)[:, None], best]
    scores["error"] = float(errors.min(0).mean())
    if answer.owner is not None and k > 1:  # pixels of the image where an object owns them, and else its own
        owner, image = answer.owner[np.arange(n)[:, None], best][..., None], scenes.images[:, None] / 255
        cut = owner * image + (1 - owner) * np.minimum(found, image)
        scores["error cut out"] = float(np.square(cut - truth).mean())
    masks, inks = (found > 0.5).any(-1), (truth > 0.5).any(-1)
    union = (masks | inks).sum((2, 3)).clip(1)
    scores["iou"] = float(((masks & inks).sum((2, 3)) / union).mean())
    if k > 1:
        one = inks.sum(1) == 1  # pixels of one object only; those of several have no right answer
        owner, label = answer.owner.argmax(1), inks.argmax(1)
        scores["ari"] = float(np.mean([adjusted_rand_score(label[i][one[i]], owner[i][one[i]]) for i in range(n)]))
    return scores
