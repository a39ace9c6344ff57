"""Photographs of one's own at 64x64: what the autoencoder and one capsule keep of pictures that training did not see.

    python -m benchmarks.quality.photographs FOLDER [--work runs/photographs]

FOLDER has large pictures, such as the JPEGs of Debian's wallpapers: `apt-get download` and `dpkg -x` of the packages
lomiri-wallpapers-16.04, lomiri-wallpapers-20.04, mate-backgrounds, plasma-workspace-wallpapers and lxqt-themes.
Random squares of them are the images. Every fifth picture is a test picture, and all of its squares are test images.

Trains `capspoe train --preset photos --size 64` and writes the record `photographs`: the minutes, and the mean peak
signal-to-noise ratio of reconstructed test images. The baseline has as many numbers as a capsule and the choice of
it: k-means with as many clusters, and PCA of the pixels in each. Draws docs/figures/photographs.png.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from benchmarks import records
from capspoe.config import parse_layers, preset
from capspoe.data import open_dataset
from capspoe.figures.reconstruction import Reconstruction, draw_reconstructions, reconstructions
from capspoe.figures.sheet import write
from capspoe.run import checkpoint
from capspoe.run.train import train

RECORD = "photographs"
DEPENDS = records.TRAINING
SIDE = 64
SQUARES = 60  # of each picture
SMALLEST = 0.35  # side of a square, relative to the shorter side of the picture
TEST_EVERY = 5
MIN_SIDE = 700  # smaller pictures are thumbnails of others
SHOWN = 12
FIGURE = records.ROOT / "docs" / "figures" / "photographs.png"


def write_squares(pictures: Path, folder: Path) -> None:
    """Write random squares of the pictures to the sub-folders train and test."""
    rng = np.random.default_rng(0)
    files = {picture_name(path): path for path in jpegs(pictures)}  # of several sizes the largest
    for number, name in enumerate(sorted(files)):
        part = folder / ("train" if number % TEST_EVERY else "test")
        part.mkdir(parents=True, exist_ok=True)
        with Image.open(files[name]) as opened:
            picture = opened.convert("RGB")
        for square in range(SQUARES):
            random_square(picture, rng).save(part / f"{number:03d}-{square:02d}.png")


def jpegs(pictures: Path) -> list[Path]:
    """The large JPEGs below a folder, the largest last."""
    large = []
    for path in pictures.rglob("*.jpg"):
        if path.is_symlink():
            continue
        with Image.open(path) as picture:
            if min(picture.size) >= MIN_SIDE:
                large.append((picture.width * picture.height, path))
    return [path for _, path in sorted(large)]


def picture_name(path: Path) -> str:
    """The name of a picture: that of its file, or of its folder, where files are named by their size."""
    return path.stem if path.stem[0].isalpha() else path.parents[2].name


def random_square(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    side = int(min(picture.size) * rng.uniform(SMALLEST, 1))
    left = int(rng.integers(picture.width - side + 1))
    top = int(rng.integers(picture.height - side + 1))
    square = picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS, (left, top, left + side, top + side))
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.integers(2) else square


def psnr(error: np.ndarray) -> float:
    """Mean peak signal-to-noise ratio of images, from the mean squared error of each."""
    return round(float(np.mean(-10 * np.log10(error))), 2)


def groups_and_pca(train_pixels: np.ndarray, test_pixels: np.ndarray, groups: int, numbers: int) -> np.ndarray:
    """Mean squared errors of test images reconstructed by the PCA of their cluster of pixels."""
    clusters = KMeans(groups, n_init=3, random_state=0).fit(train_pixels)
    test_cluster = clusters.predict(test_pixels)
    errors = np.zeros(len(test_pixels))
    for k in np.unique(test_cluster):
        own = train_pixels[clusters.labels_ == k]
        pca = PCA(min(numbers, len(own) - 1), random_state=0).fit(own)
        rows = test_cluster == k
        decoded = pca.inverse_transform(pca.transform(test_pixels[rows])).clip(0, 1)
        errors[rows] = np.square(decoded - test_pixels[rows]).mean(1)
    return errors


def flat_pixels(folder: Path, split: str) -> np.ndarray:
    """The pixels (n, d) in [0, 1] of a part of the images."""
    dataset = open_dataset(str(folder), split)
    pixels = dataset.batch(np.arange(len(dataset)))
    return pixels.reshape(len(pixels), -1).astype(np.float32) / 255


def measure(folder: Path, run: Path, seed: int) -> tuple[dict[str, Any], Reconstruction]:
    """The scores of a run, and what it keeps of all test images."""
    config = preset("photos", str(folder)).replace(size=SIDE, seed=seed)
    model = train(out=run, config=config)
    dataset = open_dataset(str(folder), "test")
    kept = reconstructions(model, dataset.batch(np.arange(len(dataset))))
    (capsules,) = parse_layers(config.layers)
    baseline = groups_and_pca(flat_pixels(folder, "train"), flat_pixels(folder, "test"), *capsules)
    scores = {
        "seed": seed,
        "layers": config.layers,
        "train images": len(open_dataset(str(folder), "train")),
        "test images": len(dataset),
        "minutes": round(checkpoint.newest(run).state.seconds / 60, 1),
        "psnr": {
            "autoencoder": psnr(kept.error[1]),
            "its capsule": psnr(kept.error[2]),
            "k-means + PCA of pixels": psnr(baseline),
        },
    }
    return scores, kept


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, metavar="FOLDER")
    parser.add_argument("--work", type=Path, default=Path("runs/photographs"), help="where squares and runs are kept")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    folder = options.work / "squares"
    if not folder.exists():
        write_squares(options.pictures, folder)
    scores, kept = measure(folder, options.work / f"run-{options.seed}", options.seed)
    records.write(RECORD, scores, DEPENDS)
    # One square of each test picture.
    of_pictures = slice(0, None, SQUARES)
    shown = Reconstruction(kept.images[:, of_pictures], kept.error[:, of_pictures], kept.on[of_pictures])
    write(draw_reconstructions(shown, SHOWN), FIGURE)
    print(scores)


if __name__ == "__main__":
    main()
