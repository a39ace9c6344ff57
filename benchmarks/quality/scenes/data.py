"""Scenes with several objects, or with damage, from a data set of single objects, and the scores of an answer."""

import itertools
from typing import Literal, NamedTuple, get_args

import numpy as np
from sklearn.metrics import adjusted_rand_score

from capspoe.data import Images
from capspoe.errors import InputError

Kind = Literal["superposed", "shifted", "side by side", "three", "occluded", "hole", "missing side", "fragments"]
OBJECTS = {"three": 3, "hole": 1, "missing side": 1, "fragments": 1}  # in a scene; two in all others
OPAQUE = 26  # brightness (of 255) from which a pixel hides what is behind it
INK = 0.5  # brightness (of 1) from which a pixel belongs to an object


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
    proposed: np.ndarray | None = None  # (n, 9) labels of the nine best capsules


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
    k = OBJECTS.get(kind, 2)
    index = different(rng, images.labels, len(images.pixels), (count, k))
    objects = images.pixels[index]
    if kind == "shifted":
        objects = all_moved(rng, objects, shift)
    if kind == "side by side":
        objects = beside_each_other(objects)
    scenes = objects.max(1)
    if kind == "occluded":
        front = objects[:, 0]
        behind = objects[:, 1]
        scenes = np.where(front.max(-1, keepdims=True) >= OPAQUE, front, behind)
    if k == 1:
        for scene in scenes:
            damage(rng, scene, kind, images.pixels)
    labels = None if images.labels is None else images.labels[index]
    return Scenes(scenes, objects, labels)


def different(rng: np.random.Generator, labels: np.ndarray | None, count: int, shape: tuple[int, int]) -> np.ndarray:
    """Indices of images, those of a row with different labels."""
    index = rng.integers(0, count, shape)
    if labels is None:
        return index
    if len(np.unique(labels)) < shape[1]:
        raise InputError(f"scenes of {shape[1]} objects need images with as many different labels")
    for column in range(1, shape[1]):
        while True:
            repeated = (labels[index[:, column, None]] == labels[index[:, :column]]).any(1)
            if not repeated.any():
                break
            index[repeated, column] = rng.integers(0, count, repeated.sum())
    return index


def all_moved(rng: np.random.Generator, objects: np.ndarray, shift: int) -> np.ndarray:
    """Every object of scenes (n, k, H, W, C) moved by up to `shift` pixels in each direction."""
    singles = objects.reshape(-1, *objects.shape[2:])
    moves = rng.integers(-shift, shift + 1, (len(singles), 2))
    shifted = [moved(image, down, right) for image, (down, right) in zip(singles, moves, strict=True)]
    return np.stack(shifted).reshape(objects.shape)


def moved(image: np.ndarray, down: int, right: int) -> np.ndarray:
    """The image moved by some pixels; what leaves it is lost, what enters is 0."""
    H, W = image.shape[:2]
    out = np.zeros_like(image)
    inside = image[max(-down, 0) : H + min(-down, 0), max(-right, 0) : W + min(-right, 0)]
    out[max(down, 0) : H + min(down, 0), max(right, 0) : W + min(right, 0)] = inside
    return out


def beside_each_other(objects: np.ndarray) -> np.ndarray:
    """Two objects (n, 2, H, W, C) on a canvas half as wide again, the first on the left."""
    n, k, H, W, C = objects.shape
    wide = np.zeros((n, k, H, W + W // 2, C), np.uint8)
    wide[:, 0, :, :W] = objects[:, 0]
    wide[:, 1, :, -W:] = objects[:, 1]
    return wide


def damage(rng: np.random.Generator, scene: np.ndarray, kind: str, others: np.ndarray) -> None:
    """Damage one scene (H, W, C) in place."""
    H, W = scene.shape[:2]
    if kind == "hole":
        scene[a_ninth(rng, H, W, middle=True)] = 0
    elif kind == "missing side":
        turned = np.rot90(scene, int(rng.integers(4)))  # a view: what is erased in it is erased in the scene
        turned[: 2 * H // 5] = 0
    else:
        for other in others[rng.integers(0, len(others), 2)]:
            where = a_ninth(rng, H, W)
            scene[where] = np.maximum(scene[where], other[where])


def a_ninth(rng: np.random.Generator, H: int, W: int, middle: bool = False) -> tuple[slice, slice]:
    """A patch of a third of each side, anywhere or near the middle, where the objects are."""
    low, high = (0.25, 0.75) if middle else (0, 1)
    top = int(rng.uniform(low, high) * (H - H // 3 + 1))
    left = int(rng.uniform(low, high) * (W - W // 3 + 1))
    return slice(top, top + H // 3), slice(left, left + W // 3)


def score(scenes: Scenes, answer: Answer) -> dict[str, float]:
    """Scores of an answer.

    right : share of scenes with all labels right
    among nine : share with all labels among the nine best capsules
    error : mean squared error of each object as it was decoded
    error cut out : the same with the pixels of the image where an object owns them
    iou : intersection over union of the objects' pixels
    ari : adjusted Rand index of the pixels that belong to one object only
    """
    _, k = scenes.labels.shape
    all_right = (np.sort(answer.labels, 1) == np.sort(scenes.labels, 1)).all(1)
    scores = {"right": float(all_right.mean())}
    if answer.proposed is not None:
        among = (answer.proposed[:, None] == scenes.labels[:, :, None]).any(2)
        scores["among nine"] = float(among.all(1).mean())
    if answer.objects is None:
        return scores
    truth = scenes.objects / 255
    order, error = best_order(answer.objects, truth)
    rows = np.arange(len(truth))[:, None]
    objects = answer.objects[rows, order]
    scores["error"] = float(error.mean())
    if answer.owner is not None and k > 1:
        owner = answer.owner[rows, order][..., None]
        image = scenes.images[:, None] / 255
        cut_out = owner * image + (1 - owner) * np.minimum(objects, image)
        scores["error cut out"] = float(np.square(cut_out - truth).mean())
    ink = (objects > INK).any(-1)
    true_ink = (truth > INK).any(-1)
    union = (ink | true_ink).sum((2, 3)).clip(1)
    scores["iou"] = float(((ink & true_ink).sum((2, 3)) / union).mean())
    if k > 1:
        scores["ari"] = rand_index(answer.owner, true_ink)
    return scores


def best_order(objects: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order (n, k) in which the objects of each scene fit the true ones best, and their error then."""
    orders = np.array(list(itertools.permutations(range(truth.shape[1]))))
    errors = np.stack([np.square(objects[:, order] - truth).mean((1, 2, 3, 4)) for order in orders])
    return orders[errors.argmin(0)], errors.min(0)


def rand_index(owner: np.ndarray, true_ink: np.ndarray) -> float:
    """Mean adjusted Rand index of the owners of pixels; both arrays are (n, k, H, W).

    Only pixels of exactly one object count: those of several have no right answer.
    """
    single = true_ink.sum(1) == 1
    owned_by = owner.argmax(1)
    belongs_to = true_ink.argmax(1)
    indices = []
    for scene, pixels in enumerate(single):
        indices.append(adjusted_rand_score(belongs_to[scene][pixels], owned_by[scene][pixels]))
    return float(np.mean(indices))
