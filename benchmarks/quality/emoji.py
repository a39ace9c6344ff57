"""Groups of emoji, a set that nothing was tuned for: python benchmarks/emoji.py PACKAGE ... [--train colour outline]

PACKAGE is the unpacked npm package emoji-datasource-google (`npm pack emoji-datasource-google`, then tar). The images
are its emoji without skin tones, laid on white; the labels are their categories and serve the scores only. Further
packages, emoji-datasource-apple and so on, add images that are grouped too, but only those of the first are scored.
Compares k-means with spectral groups, 20 each, on the pixels in colour, in grey, of the outline alone, and at three
sizes. With --train on the codes of `capspoe train` with its default settings, and its capsules; --runs keeps these
runs and uses them again. "neighbours" is the accuracy of the five nearest other images of the first package, which
know the labels: how much of the categories can be seen at all. Adds to benchmarks/records/emoji.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score
from sklearn.neighbors import NearestNeighbors

from capspoe import CapsulePoE, __version__, train
from capspoe.train.codes import codes_in_memory
from capspoe.train.spectral import pca_points, spectral_groups

RECORD = Path(__file__).parent / "records" / "emoji.json"
GROUPS, SEEDS = 20, 3


def read(package: Path) -> tuple[list[Image.Image], list[str]]:
    """The images with their transparency, and the category of each."""
    (folder,) = (package / "img").iterdir()
    rows = [row for row in json.loads((package / "emoji.json").read_text()) if row[f"has_img_{folder.name}"]]
    images = [Image.open(folder / "64" / row["image"]).convert("RGBA") for row in rows]
    return images, [row["category"] for row in rows]


def pixels(images: list[Image.Image], size: int, look: str) -> np.ndarray:
    """uint8 (n, size, size, 1 or 3): "colour" and "grey" on white, or the "outline", which is the opacity."""
    small = np.stack([np.asarray(image.resize((size, size), Image.Resampling.BOX)) for image in images]).astype(float)
    opacity = small[..., 3:] / 255
    if look == "outline":
        return (255 * opacity).astype(np.uint8)
    white = opacity * small[..., :3] + 255 * (1 - opacity)
    return (white if look == "colour" else white @ [[0.299], [0.587], [0.114]]).astype(np.uint8)


def scores(found: list[np.ndarray], labels: np.ndarray) -> dict[str, float]:
    """Means over the seeds."""
    found = [groups[: len(labels)] for groups in found]
    purity = [sum(np.bincount(labels[f == g]).max() for g in np.unique(f)) / len(labels) for f in found]
    nmi = [normalized_mutual_info_score(labels, f) for f in found]
    return {"purity": round(float(np.mean(purity)), 3), "nmi": round(float(np.mean(nmi)), 3)}


def neighbour_accuracy(points: np.ndarray, labels: np.ndarray) -> float:
    """Of the commonest label among the five nearest other images."""
    _, near = NearestNeighbors(n_neighbors=6).fit(points).kneighbors(points)
    votes = np.apply_along_axis(np.bincount, 1, labels[near[:, 1:]], minlength=labels.max() + 1)
    return round(float((votes.argmax(1) == labels).mean()), 3)


def compared(rows: np.ndarray, labels: np.ndarray) -> dict[str, object]:
    points = pca_points(rows, 0).numpy()
    means = [KMeans(GROUPS, n_init=3, random_state=seed).fit_predict(points) for seed in range(SEEDS)]
    spectral = [spectral_groups(rows, GROUPS, seed=seed) for seed in range(SEEDS)]
    found = {"k-means": scores(means, labels), "spectral": scores(spectral, labels)}
    return found | {"neighbours": neighbour_accuracy(points[: len(labels)], labels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("packages", type=Path, nargs="+")
    parser.add_argument("--train", nargs="*", default=[], help="looks to train on, such as colour outline")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    a = parser.parse_args()
    parts = [read(package) for package in a.packages]
    images = [image for part, _ in parts for image in part]
    labels = np.unique(parts[0][1], return_inverse=True)[1]
    lines = json.loads(RECORD.read_text()) if RECORD.exists() else []

    def add(**line: object) -> None:
        lines.append(line | {"images": len(images), "capspoe": __version__})
        print(json.dumps(lines[-1]), flush=True)
        RECORD.write_text("[\n " + ",\n ".join(map(json.dumps, lines)) + "\n]\n")

    for look in a.train:
        own = pixels(images, 28, look)
        run = a.runs / f"emoji-{look}-{len(images)}"
        model = CapsulePoE.load(run) if run.exists() else train(own, run, quiet=True, threads=1)
        add(look=look, size=28, of="codes", **compared(codes_in_memory(model, own), labels))
        winner = model.encode(own).on.argmax(1)
        add(look=look, size=28, of="capspoe", capsules=scores([winner], labels))
    if not a.train:
        for look, size in [("colour", 28), ("grey", 28), ("outline", 28), ("colour", 14), ("colour", 56)]:
            add(look=look, size=size, of="pixels", **compared(pixels(images, size, look), labels))


if __name__ == "__main__":
    main()
