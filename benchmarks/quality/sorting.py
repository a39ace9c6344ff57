"""Measure `capspoe sort`: time, memory, and groups beside other methods.

    python -m benchmarks.quality.sorting SET ... [--emoji PACKAGE] [--fonts FOLDER] [--clustimage PYTHON]

SET is one or more of
    emoji     the unpacked npm package emoji-datasource-google (`npm pack emoji-datasource-google`, then tar), without
              skin tones; ten categories, 20 groups
    letters   the 26 capitals in every .otf and .ttf font under FOLDER that has them, such as those of Debian's
              texlive-fonts-extra (`apt-get download texlive-fonts-extra`, then `dpkg -x`), 28x28; 26 groups
    cifar10   its 10,000 test images; 20 groups
    mnist     its 10,000 test images; 10 groups
    mixed     1,000 pictures of 30 kinds in sub-folders, 40 of them there twice, and 5 broken files: emoji, letters in
              matplotlib's fonts, test images of CIFAR-10 and MNIST, crops of scikit-learn's two sample photographs
              with 12 megapixels; 30 groups
    large     1,000 photographs of 12 megapixels: 100 crops of scikit-learn's two sample images under ten names each;
              time and memory only
    more      ten more images in the sorted folder of emoji; time only
    thumbnails-10000, thumbnails-100000
              JPEGs of 128x128 pixels: the images of CIFAR-10, then of Fashion-MNIST, enlarged; time and memory only

Images become files in the folder --work, and `capspoe sort` runs in a process of its own with the threads that
--threads says: its seconds of CPU time and its peak memory are recorded beside the seconds on the clock, which begin
with the start of Python and depend on what else the machine does. --alone measures no other methods. The labels serve
the scores only. Other methods get the pixels, or the points of `sort` after its PCA, and look for the same number of
groups. HDBSCAN finds its own number; images that it leaves out count as a group. clustimage, from PyPI, runs on the
emoji files in an environment of its own, whose interpreter is PYTHON; images that it leaves out count as a group too.
Rows are added to the record; those that are there are skipped.
"""

import argparse
import csv
import json
import os
import shutil
import string
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageFont
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_sample_images
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

from benchmarks import records
from benchmarks.quality.emoji import read_package
from benchmarks.quality.mixed import large_crop, write_mixed
from capspoe import data
from capspoe.evaluate.clustering import clustering_scores
from capspoe.sklearn import CapsulePoE
from capspoe.sorting.library import load_groups, load_library
from capspoe.training.spectral import pca_points, spectral_groups

RECORD = "sorting"
DEPENDS = (*records.TRAINING, "sklearn.py", "sorting")
SEEDS = 3
MAX_HDBSCAN = 12_000  # images; more take many minutes
LETTER_SIDE = 28
CLUSTIMAGE = """
import json, sys
from clustimage import Clustimage
method, groups, *files = json.load(sys.stdin)
result = Clustimage(method=method, dim=(64, 64), verbose=60).fit_transform(
    files, cluster="agglomerative", min_clust=groups, max_clust=groups + 1)
print(json.dumps(dict(zip(map(str, result["pathnames"]), map(int, result["labels"])))))
"""
MIN_DIFFERENT = 20  # of the 26 letters: a font of symbols may have one picture for all


class Labelled(NamedTuple):
    """Images with the number of their class, one by one."""

    images: Iterator[tuple[Image.Image, int]]
    groups: int


def emoji(options: argparse.Namespace) -> Labelled:
    package = read_package(options.emoji)
    categories = sorted(set(package.categories))
    numbers = [categories.index(category) for category in package.categories]
    return Labelled(zip(package.images, numbers, strict=True), 20)


def letters(options: argparse.Namespace) -> Labelled:
    return Labelled(drawn_letters(options.fonts), 26)


def drawn_letters(fonts: Path) -> Iterator[tuple[Image.Image, int]]:
    """Dark capitals on white, centred, the longer side 20 of 28 pixels."""
    from fontTools.ttLib import TTFont  # comes with matplotlib

    for path in sorted(fonts.rglob("*")):
        if path.suffix not in (".otf", ".ttf") or path.is_symlink():
            continue
        try:
            font = ImageFont.truetype(str(path), 64)
            known = TTFont(path, lazy=True).getBestCmap()
            if not all(ord(letter) in known for letter in string.ascii_uppercase):
                continue
            pictures = [letter_picture(font, letter) for letter in string.ascii_uppercase]
        except Exception:  # fonts are broken in many ways
            continue
        if len({picture.tobytes() for picture in pictures}) >= MIN_DIFFERENT:
            yield from zip(pictures, range(26), strict=True)


def letter_picture(font: ImageFont.FreeTypeFont, letter: str) -> Image.Image:
    mask = font.getmask(letter)
    glyph = Image.frombytes("L", mask.size, bytes(mask))
    scale = 20 / max(glyph.size)
    size = (max(1, round(glyph.width * scale)), max(1, round(glyph.height * scale)))
    glyph = glyph.resize(size, Image.Resampling.BOX)
    picture = Image.new("L", (LETTER_SIDE, LETTER_SIDE))
    picture.paste(glyph, ((LETTER_SIDE - size[0]) // 2, (LETTER_SIDE - size[1]) // 2))
    return Image.eval(picture, lambda value: 255 - value)


def named(name: str, groups: int, options: argparse.Namespace) -> Labelled:
    pixels, labels = data.load(name, "test")
    squeezed = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    return Labelled(((Image.fromarray(a), int(b)) for a, b in zip(squeezed, labels, strict=True)), groups)


SETS: dict[str, Callable[[argparse.Namespace], Labelled]] = {
    "emoji": emoji,
    "letters": letters,
    "cifar10": partial(named, "cifar10", 20),
    "mnist": partial(named, "mnist", 10),
}
BOTH = ("outlines", "photos")
FEATURES = {"emoji": BOTH, "cifar10": BOTH, "mixed": BOTH}  # the others: outlines
TIMED = ("large", "more", "thumbnails-10000", "thumbnails-100000")


def write_images(name: str, options: argparse.Namespace) -> tuple[Path, int]:
    """Write the images of a set as files, with their labels in the names; returns the folder and number of groups."""
    folder = options.work / name
    if name == "mixed":
        if not folder.exists():
            write_mixed(folder, options.emoji)
        return folder, 30
    labelled = SETS[name](options)
    if not folder.exists():
        partly = folder.with_suffix(".partly")
        shutil.rmtree(partly, ignore_errors=True)
        partly.mkdir(parents=True)
        for number, (image, label) in enumerate(labelled.images):
            image.save(partly / f"{number:06d}-{label}.png")
        partly.rename(folder)
    return folder, labelled.groups


def label_of(file: str) -> int:
    return int(Path(file).stem.partition("-")[2])


class Process(NamedTuple):
    """What a process took."""

    seconds: float
    cpu_seconds: float
    megabytes: int


def run_sort(threads: int, folder: Path, out: Path, *options: str) -> Process:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    began = time.monotonic()
    command = [sys.executable, "-m", "capspoe", "sort", str(folder), "--out", str(out), *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    seconds = time.monotonic() - began
    return Process(round(seconds, 1), round(used.ru_utime + used.ru_stime, 1), used.ru_maxrss >> 10)


def scores(group: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    group = np.unique(group, return_inverse=True)[1]
    found = clustering_scores(group, labels, int(group.max()) + 1, int(labels.max()) + 1)
    return {
        "acc": round(found["one_to_one"], 3),
        "purity": round(found["purity"], 3),
        "nmi": round(float(normalized_mutual_info_score(labels, group)), 3),
    }


def mean_scores(groupings: list[np.ndarray], labels: np.ndarray) -> dict[str, float]:
    rows = [scores(group, labels) for group in groupings]
    return {name: round(float(np.mean([row[name] for row in rows])), 3) for name in rows[0]}


def measure_set(name: str, features: str, options: argparse.Namespace) -> None:
    folder, groups = write_images(name, options)
    out = options.work / f"{name}-{features}-sorted"
    common = {"set": name, "features": features, "images": count_files(folder), "groups": groups}
    if not done(name, features, "capspoe sort"):
        shutil.rmtree(out, ignore_errors=True)
        process = run_sort(options.threads, folder, out, "--features", features, "--groups", str(groups))
        with (out / "groups.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        labels = np.array([label_of(row["file"]) for row in rows])
        found = np.unique([row["group"] for row in rows], return_inverse=True)[1]
        measured = {**scores(found, labels), "threads": options.threads, **process._asdict()}
        add_row({**common, "method": "capspoe sort", **measured})
    if options.alone:
        return
    library = load_library(out / "cache")
    sorted_groups = load_groups(out / "cache")
    assert library is not None
    assert sorted_groups is not None
    labels = np.array([label_of(record.name) for record in library.records])
    points = sorted_groups.points[:, :-1]
    pixels = pca_points(library.small, 0).numpy()
    # Spectral groups with other numbers of neighbours: the odd images are not left out.
    for neighbours in (5, 10):
        compare(common, f"spectral groups, {neighbours} neighbours", labels, spectral, points, groups, neighbours)
    compare(common, "capsules on the same points", labels, capsules, points, groups)
    compare(common, "k-means on the same points", labels, kmeans, points, groups)
    compare(common, "Gaussian mixture on the same points", labels, mixture, points, groups)
    if len(points) <= MAX_HDBSCAN:
        compare(common, "HDBSCAN on the same points", labels, hdbscan, points)
    if features == "outlines":
        compare(common, "k-means on pixels", labels, kmeans, pixels, groups)
    if name == "emoji" and options.clustimage:
        files = [str(folder / record.name) for record in library.records]
        method = "hog" if features == "outlines" else "pca"
        compare(common, f"clustimage, {method}", labels, clustimage, options.clustimage, method, files, groups)


def spectral(points: np.ndarray, groups: int, neighbours: int, seed: int) -> np.ndarray:
    group = spectral_groups(points, groups, neighbours, seed)
    assert group is not None
    return group


def capsules(points: np.ndarray, groups: int, seed: int) -> np.ndarray:
    """The capsule that is on, of capsules trained on the points as on any table."""
    return CapsulePoE(groups, random_state=seed).fit_predict(points)


def kmeans(points: np.ndarray, groups: int, seed: int) -> np.ndarray:
    return KMeans(groups, n_init=5, random_state=seed).fit_predict(points)


def mixture(points: np.ndarray, groups: int, seed: int) -> np.ndarray:
    return GaussianMixture(groups, covariance_type="diag", random_state=seed).fit_predict(points)


def hdbscan(points: np.ndarray, seed: int) -> np.ndarray:
    return HDBSCAN(min_cluster_size=max(5, len(points) // 200), copy=True).fit_predict(points)


def clustimage(python: str, method: str, files: list[str], groups: int, seed: int) -> np.ndarray:
    settings = json.dumps([method, groups, *files])
    done = subprocess.run([python, "-c", CLUSTIMAGE], input=settings, capture_output=True, text=True, check=True)
    label = json.loads(done.stdout.splitlines()[-1])
    return np.array([label.get(file, -1) for file in files])


def cpu_time() -> float:
    """Of this process and of those that it has waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def compare(common: dict[str, Any], method: str, labels: np.ndarray, function: Any, *arguments: Any) -> None:
    """Add a row for a method: the mean of some seeds, if they matter."""
    if done(common["set"], common["features"], method):
        return
    seeds = 1 if function in (capsules, hdbscan, clustimage) or len(labels) > MAX_HDBSCAN else SEEDS
    began = cpu_time()
    groupings = [function(*arguments, seed) for seed in range(seeds)]
    seconds = (cpu_time() - began) / seeds
    row = {**common, "method": method, "seeds": seeds, **mean_scores(groupings, labels)}
    if function is hdbscan:
        row["groups"] = len(np.unique(groupings[0]))
    add_row({**row, "cpu_seconds": round(seconds, 1)})


def measure_large(options: argparse.Namespace) -> None:
    folder = options.work / "large"
    if not folder.exists():
        folder.mkdir(parents=True)
        rng = np.random.default_rng(0)
        pictures = [Image.fromarray(pixels) for pixels in load_sample_images().images]
        for number in range(100):
            first = folder / f"{number:03d}-0.jpg"
            large_crop(pictures[number % 2], rng).save(first, quality=90)
            for copy in range(1, 10):
                shutil.copyfile(first, folder / f"{number:03d}-{copy}.jpg")
    for features in ("outlines", "photos"):
        if not done("large", features, "capspoe sort"):
            out = options.work / f"large-{features}-sorted"
            shutil.rmtree(out, ignore_errors=True)
            process = run_sort(options.threads, folder, out, "--features", features)
            row = {"set": "large", "features": features, "images": count_files(folder)}
            add_row({**row, "method": "capspoe sort", "threads": options.threads, **process._asdict()})


def measure_thumbnails(name: str, options: argparse.Namespace) -> None:
    folder = options.work / name
    if not folder.exists():
        pictures = (pixels for source in ("cifar10", "fashion-mnist") for pixels in data.load(source, "all").pixels)
        for number, pixels in enumerate(islice(pictures, int(name.partition("-")[2]))):
            picture = Image.fromarray(pixels.squeeze()).resize((128, 128), Image.Resampling.BILINEAR)
            path = folder / f"{number // 1000:03d}" / f"{number:06d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            picture.save(path, quality=85)
    for features in options.features:
        if not done(name, features, "capspoe sort"):
            out = options.work / f"{name}-{features}-sorted"
            shutil.rmtree(out, ignore_errors=True)
            process = run_sort(options.threads, folder, out, "--features", features)
            row = {"set": name, "features": features, "images": count_files(folder)}
            add_row({**row, "method": "capspoe sort", "threads": options.threads, **process._asdict()})


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))


def measure_more(options: argparse.Namespace) -> None:
    """Take ten images out of the emoji, sort the others, and put them back."""
    for features in ("outlines", "photos"):
        if done("more", features, "capspoe sort"):
            continue
        folder, _ = write_images("emoji", options)
        part = options.work / "more"
        out = options.work / f"more-{features}-sorted"
        for old in (part, out):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(folder, part)
        later = sorted(part.iterdir())[::191][:10]
        for path in later:
            path.unlink()
        run_sort(options.threads, part, out, "--features", features)
        for path in later:
            shutil.copy(folder / path.name, path)
        process = run_sort(options.threads, part, out)
        row = {"set": "more", "features": features, "images": len(later)}
        add_row({**row, "method": "capspoe sort", "threads": options.threads, **process._asdict()})


def done(name: str, features: str, method: str) -> bool:
    key = (name, features, method)
    return any((row["set"], row["features"], row["method"]) == key for row in records.read(RECORD, default=[]))


def add_row(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)
    records.write(RECORD, [*records.read(RECORD, default=[]), row], DEPENDS, extends=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", choices=[*SETS, "mixed", *TIMED], metavar="SET")
    parser.add_argument("--emoji", type=Path, help="the unpacked package emoji-datasource-google")
    parser.add_argument("--fonts", type=Path, help="a folder of fonts")
    parser.add_argument("--clustimage", help="a Python that has clustimage")
    parser.add_argument("--features", nargs="*", default=["outlines", "photos"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="measure capspoe sort, and no other methods")
    parser.add_argument("--work", type=Path, default=Path("runs/sorting"), help="where files are written")
    options = parser.parse_args(arguments)
    if {"emoji", "mixed", "more"} & set(options.sets) and options.emoji is None:
        parser.error("--emoji is needed for these sets")
    if "letters" in options.sets and options.fonts is None:
        parser.error("--fonts is needed for letters")
    for name in options.sets:
        if name == "large":
            measure_large(options)
        elif name == "more":
            measure_more(options)
        elif name in TIMED:
            measure_thumbnails(name, options)
        else:
            for features in FEATURES.get(name, ("outlines",)):
                if features not in options.features:
                    continue
                measure_set(name, features, options)


if __name__ == "__main__":
    main()
