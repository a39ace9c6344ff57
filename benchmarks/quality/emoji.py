"""Measure groups of emoji, a set that nothing was tuned for.

    python -m benchmarks.quality.emoji PACKAGE ... [--train colour outline]

PACKAGE is the unpacked npm package emoji-datasource-google (`npm pack emoji-datasource-google`, then tar). The images
are its emoji without skin tones, laid on white; the labels are their categories and serve the scores only. Further
packages, emoji-datasource-apple and so on, add images that are grouped too, but only those of the first are scored.
Compares k-means with spectral groups, 20 each, on the pixels in colour, in grey, of the outline alone, and at three
sizes. With --train on the codes of `capspoe train` with its default settings, and its capsules; --runs keeps these
runs and uses them again. "neighbours" is the accuracy of the five nearest other images of the first package, which
know the labels: how much of the categories can be seen at all. Rows are added to the record.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors

from benchmarks import records
from capspoe import CapsulePoE
from capspoe.evaluate.clustering import clustering_scores
from capspoe.run.train import train
from capspoe.training.codes import codes_in_memory
from capspoe.training.spectral import pca_points, spectral_groups

RECORD = "emoji"
DEPENDS = (*records.TRAINING, "evaluate")
GROUPS = 20
SEEDS = 3
NEIGHBOURS = 5
SIZE = 28  # of the images that are trained on
GREY = np.array([[0.299], [0.587], [0.114]])
LOOKS = (("colour", 28), ("grey", 28), ("outline", 28), ("colour", 14), ("colour", 56))


class Package(NamedTuple):
    """Images with their transparency, and the category of each."""

    images: list[Image.Image]
    categories: list[str]


def read_package(package: Path) -> Package:
    (folder,) = (package / "img").iterdir()
    images = []
    categories = []
    for row in json.loads((package / "emoji.json").read_text()):
        if row[f"has_img_{folder.name}"]:
            images.append(Image.open(folder / "64" / row["image"]).convert("RGBA"))
            categories.append(row["category"])
    return Package(images, categories)


def pixels_of(images: list[Image.Image], size: int, look: str) -> np.ndarray:
    """uint8 (n, size, size, 1 or 3): "colour" and "grey" on white, or the "outline", which is the opacity."""
    resized = [np.asarray(image.resize((size, size), Image.Resampling.BOX)) for image in images]
    rgba = np.stack(resized).astype(float)
    opacity = rgba[..., 3:] / 255
    on_white = opacity * rgba[..., :3] + 255 * (1 - opacity)
    if look == "outline":
        pixels = 255 * opacity
    elif look == "grey":
        pixels = on_white @ GREY
    else:
        pixels = on_white
    return pixels.astype(np.uint8)


def group_scores(groupings: list[np.ndarray], labels: np.ndarray) -> dict[str, float]:
    """Means over several groupings; only images with labels count."""
    purities = []
    informations = []
    classes = int(labels.max()) + 1
    for grouping in groupings:
        group = grouping[: len(labels)]
        purities.append(clustering_scores(group, labels, int(group.max()) + 1, classes)["purity"])
        informations.append(normalized_mutual_info_score(labels, group))
    return {"purity": round(float(np.mean(purities)), 3), "nmi": round(float(np.mean(informations)), 3)}


def neighbour_accuracy(points: np.ndarray, labels: np.ndarray) -> float:
    """Of the most common label among the five nearest other images."""
    _, nearest = NearestNeighbors(n_neighbors=NEIGHBOURS + 1).fit(points).kneighbors(points)
    others = nearest[:, 1:]  # the nearest is the image itself
    votes = np.apply_along_axis(np.bincount, 1, labels[others], minlength=labels.max() + 1)
    return round(float((votes.argmax(1) == labels).mean()), 3)


def compare(rows: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Scores of k-means and of spectral groups of images or codes."""
    points = pca_points(rows, 0).numpy()
    by_kmeans = []
    by_spectral = []
    for seed in range(SEEDS):
        by_kmeans.append(KMeans(GROUPS, n_init=3, random_state=seed).fit_predict(points))
        by_spectral.append(spectral_groups(rows, GROUPS, seed=seed))
    return {
        "k-means": group_scores(by_kmeans, labels),
        "spectral": group_scores(by_spectral, labels),
        "neighbours": neighbour_accuracy(points[: len(labels)], labels),
    }


def measure_pixels(images: list[Image.Image], labels: np.ndarray) -> None:
    for look, size in LOOKS:
        scores = compare(pixels_of(images, size, look), labels)
        add_row({"look": look, "size": size, "of": "pixels", **scores, "images": len(images)})


def measure_training(images: list[Image.Image], labels: np.ndarray, look: str, runs: Path) -> None:
    pixels = pixels_of(images, SIZE, look)
    run = runs / f"emoji-{look}-{len(images)}"
    if not run.exists():
        train(pixels, run, quiet=True, threads=1)
    model = CapsulePoE.load(run)
    common = {"look": look, "size": SIZE, "images": len(images)}
    add_row({**common, "of": "codes", **compare(codes_in_memory(model, pixels), labels)})
    winner = model.encode(pixels).on.argmax(1)
    add_row({**common, "of": "capspoe", "capsules": group_scores([winner], labels)})


def add_row(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
    records.write(RECORD, [*records.read(RECORD, default=[]), row], DEPENDS, extends=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("packages", type=Path, nargs="+", metavar="PACKAGE")
    parser.add_argument("--train", nargs="*", default=[], help="looks to train on, such as colour outline")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args(arguments)
    packages = [read_package(folder) for folder in options.packages]
    images = [image for package in packages for image in package.images]
    _, labels = np.unique(packages[0].categories, return_inverse=True)
    for look in options.train:
        measure_training(images, labels, look, options.runs)
    if not options.train:
        measure_pixels(images, labels)


if __name__ == "__main__":
    main()
