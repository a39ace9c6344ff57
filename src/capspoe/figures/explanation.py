"""Images, the objects found in them, and which object each pixel belongs to."""

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from capspoe.figures.sheet import Row, draw_rows
from capspoe.infer.explain import Explanation
from capspoe.run.pictures import to_rgb_or_grey

TINTS = ("#ff7a1a", "#2f9bff", "#7ed321", "#d05ce3")  # of the objects


def tinted(image: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """An image (H, W, C) in the colours of the objects that its pixels belong to.

    `owner` (k, H, W) says how much of each pixel belongs to each object.
    """
    tints = np.array([to_rgb(colour) for colour in TINTS[: len(owner)]])
    brightness = to_rgb_or_grey(image).mean(-1, keepdims=True)
    return brightness * np.einsum("khw,kc->hwc", owner, tints)


def tinted_alone(image: np.ndarray, number: int) -> np.ndarray:
    """An image (H, W, C) in the colour of one object."""
    owner = np.zeros((number + 1, 1, 1))
    owner[number] = 1
    return tinted(image, owner)


def draw_explanation(images: np.ndarray, explanation: Explanation) -> Figure:
    """A column for each image (n, H, W, C): the image, its pixels by object, every object alone.

    Images and objects have light ink, so that it takes the colour of its object.
    """
    present = explanation.capsule >= 0
    captions = []
    for capsules, there in zip(explanation.capsule, present, strict=True):
        captions.append(", ".join(str(j) for j in capsules[there]))
    tinted_images = []
    for image, owner in zip(images, explanation.owner, strict=True):
        tinted_images.append(tinted(image, owner))
    by_object = np.stack(tinted_images)
    rows = [
        Row("image", [np.broadcast_to(to_rgb_or_grey(images), by_object.shape)]),
        Row("found", [by_object], "pixels by capsule", captions),
    ]
    # Rows that no image needs are left out.
    most = int(present.sum(1).max())
    for m in range(most):
        alone = np.stack([tinted_alone(image, m) for image in explanation.objects[:, m]])
        percent = []
        for probability, there in zip(explanation.probability[:, m], present[:, m], strict=True):
            percent.append(f"{probability:.0%}" if there else "")
        rows.append(Row(f"object {m + 1}", [alone], "decoded alone", percent))
    words = "capsules that explain each image together; below an object, the probability of its capsule"
    return draw_rows("Objects found", words, rows, 84)
