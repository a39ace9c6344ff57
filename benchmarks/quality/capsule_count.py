"""Measure how many capsules `--layers autox16` takes, and how pure that many groups are.

    python -m benchmarks.quality.capsule_count

For MNIST, Fashion-MNIST, scikit-learn's digits, and two sets made here: the 26 capitals in eight fonts that come with
matplotlib, and eight shapes, turned, slanted and moved at random. The number is that of `count_groups`, for three
seeds. The purity is that of spectral groups of up to 5,000 images: for the number found, the number of classes and
the default 20. Nothing is trained, and the labels serve the purity only. Data sets on record are skipped.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks import records
from capspoe import data
from capspoe.evaluate.clustering import clustering_scores
from capspoe.training.spectral import COUNT_IMAGES, count_groups, spectral_groups

RECORD = "capsule_count"
DEPENDS = ("data", "evaluate", "training")
FONTS = ("Sans", "Sans-Bold", "Sans-Oblique", "SansMono", "SansMono-Bold", "Serif", "Serif-Bold", "Serif-Italic")
SHAPES = 8
MADE_IMAGES = 5_200
SEEDS = 3
DEFAULT_CAPSULES = 20


def letters(count: int, seed: int = 0) -> data.Images:
    """Capitals of random fonts and sizes, 28x28."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 26
    pixels = np.empty((count, 28, 28, 1), np.uint8)
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for k, label in enumerate(labels):
        path = fonts / f"DejaVu{FONTS[rng.integers(len(FONTS))]}.ttf"
        font = ImageFont.truetype(str(path), int(rng.integers(17, 24)))
        image = Image.new("L", (56, 56))
        ImageDraw.Draw(image).text((28, 28), chr(ord("A") + label), 255, font, anchor="mm")
        turned = image.rotate(rng.normal(0, 6), Image.Resampling.BICUBIC)
        x, y = 14 + rng.normal(0, 1, 2)  # 14 is the margin that is cut off
        slanted = (1, rng.normal(0, 0.1), x, 0, 1, y)
        pixels[k, :, :, 0] = turned.transform((28, 28), Image.Transform.AFFINE, slanted, Image.Resampling.BICUBIC)
    return data.Images(pixels, labels)


def shapes(count: int, seed: int = 0) -> data.Images:
    """Shapes of random sizes and widths, drawn four times as large as 28x28."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % SHAPES
    pixels = np.empty((count, 28, 28, 1), np.uint8)
    for k, label in enumerate(labels):
        image = Image.new("L", (112, 112))
        radius = rng.uniform(28, 44)
        width = int(rng.uniform(6, 14))
        draw_shape(ImageDraw.Draw(image), int(label), radius, width)
        turned = image.rotate(rng.normal(0, 6), Image.Resampling.BICUBIC)
        x, y = rng.normal(0, 4, 2)
        slanted = (1, rng.normal(0, 0.05), x, 0, 1, y)
        moved = turned.transform((112, 112), Image.Transform.AFFINE, slanted)
        pixels[k, :, :, 0] = moved.resize((28, 28), Image.Resampling.BOX)
    return data.Images(pixels, labels)


def draw_shape(draw: ImageDraw.ImageDraw, shape: int, radius: float, width: int) -> None:
    """One of eight shapes around (56, 56)."""
    middle = 56
    low = middle - radius  # left and top
    high = middle + radius  # right and bottom
    box = (low, low, high, high)
    lines = {
        "plus": [(low, middle), (high, middle), (middle, middle), (middle, low), (middle, high)],
        "cross": [(low, low), (high, high), (middle, middle), (low, high), (high, low)],
        "triangle": [(low, high), (middle, low), (high, high), (low, high)],
        "square": [(low, low), (high, low), (high, high), (low, high), (low, low)],
        "roof": [(low, high), (middle, low), (high, high)],
    }
    name = ("ring", "arc", "disc", *lines)[shape]
    if name == "ring":
        draw.arc(box, 0, 360, 255, width)
    elif name == "arc":
        draw.arc(box, 60, 300, 255, width)
    elif name == "disc":
        draw.ellipse(box, 255)
    else:
        draw.line(lines[name], 255, width, joint="curve")


MADE_HERE: dict[str, Callable[[int], data.Images]] = {"letters": letters, "shapes": shapes}


def class_count(images: data.Images) -> int:
    return int(images.labels.max()) + 1


def purity(images: data.Images, groups: int) -> float | None:
    """The purity of this many spectral groups; None if there are too few images."""
    group = spectral_groups(images.pixels, groups)
    if group is None:
        return None
    return round(clustering_scores(group, images.labels, groups, class_count(images))["purity"], 3)


def load(name: str) -> data.Images:
    if name in MADE_HERE:
        return MADE_HERE[name](MADE_IMAGES)
    return data.load(name, "train")


def measure(name: str) -> dict[str, Any]:
    everything = load(name)
    index = np.linspace(0, len(everything.pixels) - 1, min(COUNT_IMAGES, len(everything.pixels))).astype(int)
    images = data.Images(everything.pixels[index], everything.labels[index])
    counts = [count_groups(everything.pixels, seed=seed) for seed in range(SEEDS)]
    purities = {}
    for groups in sorted({counts[0], class_count(images), DEFAULT_CAPSULES}):
        purities[str(groups)] = purity(images, groups)
    return {
        "data": name,
        "images": len(index),
        "classes": class_count(images),
        "found": counts,
        "purity": purities,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    rows = records.read(RECORD, default=[])
    for name in ("mnist", "fashion-mnist", "digits", *MADE_HERE):
        if any(row["data"] == name for row in rows):
            continue
        rows.append(measure(name))
        print(json.dumps(rows[-1]), flush=True)
        records.write(RECORD, rows, DEPENDS, extends=True)


if __name__ == "__main__":
    main()
