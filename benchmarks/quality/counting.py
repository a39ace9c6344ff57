"""Measure how often the recognition network counts the objects of an image right.

    python -m benchmarks.quality.counting [RUN]

One, two or three MNIST test images are superposed by the maximum, each moved by up to two pixels. "as they are" are
these images; "drawn" are the same at three times the size on a larger canvas, dark on light, read like a picture that
somebody gives to `capspoe explain`; as there, their counts are averaged over enlargements. These were chosen on
training images.
"""

import argparse
import json
from collections.abc import Sequence

import numpy as np
import torch

from benchmarks import records
from capspoe import CapsulePoE, data
from capspoe.data.drawings import MNIST_SIZE, frame
from capspoe.infer.explain import FITTED, Search, recognised_counts
from capspoe.infer.polarity import Polarity

DEPENDS = ("data", "infer", "model", "training")
COUNTS = (1, 2, 3)
IMAGES = 1000  # of each number
SHIFT = 2  # pixels
MARGIN = 40  # of the canvas, in its pixels
ENLARGED = 3


def superposed(pixels: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(IMAGES, 28, 28) in [0, 1], each of `count` images."""
    scenes = np.zeros((IMAGES, *pixels.shape[1:3]), np.float32)
    for _ in range(count):
        chosen = pixels[rng.integers(len(pixels), size=IMAGES), ..., 0] / np.float32(255)
        shifts = rng.integers(-SHIFT, SHIFT + 1, (IMAGES, 2))
        moved = [np.roll(image, shift, (0, 1)) for image, shift in zip(chosen, shifts, strict=True)]
        scenes = np.maximum(scenes, moved)
    return scenes


def drawn(scene: np.ndarray) -> np.ndarray:
    """The scene as the commands read a drawing of it."""
    canvas = np.pad(scene.repeat(ENLARGED, 0).repeat(ENLARGED, 1), MARGIN)
    return frame(1 - canvas, (28, 28), MNIST_SIZE, Polarity(dark=False)).pixels


@torch.no_grad()
def counted(model: CapsulePoE, scenes: np.ndarray, enlargements: tuple[float, ...]) -> np.ndarray:
    """The most probable number of objects of each scene."""
    return recognised_counts(model, model.tensor(scenes[..., None]), max(COUNTS), enlargements)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="mnist-small", metavar="RUN")
    options = parser.parse_args(arguments)
    model = CapsulePoE.load(options.run)
    pixels = data.load("mnist", "test").pixels
    rng = np.random.default_rng(0)
    rows = []
    for count in COUNTS:
        scenes = superposed(pixels, count, rng)
        pictures = np.stack([drawn(scene) for scene in scenes])
        for kind, images, enlargements in (
            ("as they are", scenes, Search.enlargements),
            ("drawn, one size", pictures, Search.enlargements),
            ("drawn", pictures, FITTED),
        ):
            right = float((counted(model, images, enlargements) == count).mean())
            rows.append({"run": options.run, "images": kind, "objects": count, "counted_right": round(right, 3)})
            print(json.dumps(rows[-1]), flush=True)
    records.write("counting", rows, DEPENDS)


if __name__ == "__main__":
    main()
