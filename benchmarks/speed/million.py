"""Measure a million images from start to end: minutes of each stage, memory and purity.

    python -m benchmarks.speed.million [--images 1000000] [--threads 2]

The images are those of MNIST, repeated, each moved by up to two pixels and with another brightness. One epoch of each
stage.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import records
from benchmarks.speed.grouping import peak_megabytes
from capspoe import CapsulePoE, data
from capspoe.evaluate.clustering import clustering_scores
from capspoe.run.train import train
from capspoe.training import spectral

RECORD = "million"
DEPENDS = (*records.TRAINING, "run")
SHIFT = 2  # pixels


def write_images(images: np.ndarray, count: int, path: Path) -> None:
    """An .npy of `count` images: the given ones, repeated, moved and darkened."""
    rng = np.random.default_rng(0)
    many = np.lib.format.open_memmap(path, "w+", np.uint8, (count, *images.shape[1:]))
    wide = np.pad(images, [(0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)])
    H, W = images.shape[1:3]
    for k in range(count):
        down, right = rng.integers(0, 2 * SHIFT + 1, 2)
        many[k] = wide[k % len(images), down : down + H, right : right + W] * rng.uniform(0.7, 1.0)
    many.flush()


class Stopwatch:
    """A function that remembers how long its last call took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        began = time.monotonic()
        result = self.function(*arguments, **options)
        self.seconds = time.monotonic() - began
        return result


def measure(images: int, threads: int) -> dict[str, Any]:
    test = data.load("mnist", "test")
    clustering = Stopwatch(spectral.spectral_groups)
    spectral.spectral_groups = clustering  # training calls it by this name
    times: dict[str, list[float]] = {"autoencoder": [], "capsules-0": []}  # of the lines of each stage

    def mark(line: dict[str, Any]) -> None:
        times[line["stage"]].append(time.monotonic())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        run = Path(folder) / "run"
        write_images(data.load("mnist", "train").pixels, images * 10 // 9, path)  # one in ten is held out
        settings = {"autoencoder_epochs": 1, "epochs": 1, "min_steps": 0, "threads": threads}
        began = time.monotonic()
        train(path, run, callback=mark, **settings)
        ended = time.monotonic()
        memory = peak_megabytes()
        model = CapsulePoE.load(run)
        winner = model.encode(test.pixels).on.argmax(1)
    first_stage = times["autoencoder"]
    second_stage = times["capsules-0"]
    seconds = {
        "stage 1": first_stage[-1] - began,
        "codes": second_stage[0] - first_stage[-1] - clustering.seconds,
        "spectral clustering": clustering.seconds,
        "stage 2": second_stage[-1] - second_stage[0],
        "prior": ended - second_stage[-1],
        "all": ended - began,
    }
    purity = clustering_scores(winner, test.labels, model.top.upper[0], 10)["purity"]
    return {
        "images": images,
        "threads": threads,
        "minutes": {name: round(duration / 60, 2) for name, duration in seconds.items()},
        "peak_mb": memory,
        "purity of MNIST's test images": round(purity, 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000, help="training images")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(arguments)
    content = measure(options.images, options.threads)
    print(json.dumps(content, indent=1))
    print(records.write(RECORD, content, DEPENDS))


if __name__ == "__main__":
    main()
