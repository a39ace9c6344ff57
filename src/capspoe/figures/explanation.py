"""Images, the objects found in them, and which object each pixel belongs to."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from capspoe.figures.sheet import Row, draw_rows
from capspoe.infer.explain import Explanation
from capspoe.run.pictures import to_rgb_or_grey

TINTS = ("#ff7a1a", "#2f9bff", "#7ed321", "#d05ce3")  # of the objects


def tinted(image: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """An image (H, W, C) in the colours of the objects that its pixels belong to; owner is (k, H, W)."""
    tints = np.array([to_rgb(colour) for colour in TINTS[: len(owner)]])
    return to_rgb_or_grey(image).mean(-1, keepdims=True) * np.einsum("khw,kc->hwc", owner, tints)


def draw_explanation(images: np.ndarray, found: Explanation) -> Figure:
    """A column for each image (n, H, W, C): the image, its pixels by object, and every object alone."""
    capsules = [", ".join(str(j) for j in row if j >= 0) for row in found.capsule]
    k = (found.capsule >= 0).sum(1).max()  # rows that no image needs are left out
    by_object = np.stack([tinted(*pair) for pair in zip(images, found.owner, strict=True)])
    rows = [
        Row("image", [np.broadcast_to(to_rgb_or_grey(images), by_object.shape)]),
        Row("found", [by_object], "pixels by object", [f"capsules {text}" for text in capsules]),
    ]
    for m in range(k):
        alone = np.stack([tinted(o, np.eye(k)[m][:, None, None]) for o in found.objects[:, m]])
        percent = [
            f"{p:.0%}" if j >= 0 else "" for j, p in zip(found.capsule[:, m], found.probability[:, m], strict=True)
        ]
        rows.append(Row(f"object {m + 1}", [alone], "decoded alone", percent))
    words = "capsules that explain each image together; below an object, the probability of its capsule"
    return draw_rows("Objects found", words, rows, 84)
