"""A million images from start to end: minutes of each stage, memory and purity, for docs/scale.md.

    python benchmarks/million.py [--images 1000000] [--threads 2]

The images are those of MNIST, repeated, each moved by up to two pixels and with another brightness. One epoch of each
stage. Writes benchmarks/records/million.json.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from grouping import purity

from capspoe import CapsulePoE, __version__, data, train
from capspoe.train import spectral

OUT = Path(__file__).resolve().parent / "records" / "million.json"
STAGES = ("autoencoder", "capsules-0")


def write_images(images: np.ndarray, count: int, path: Path) -> None:
    rng = np.random.default_rng(0)
    many = np.lib.format.open_memmap(path, "w+", np.uint8, (count, *images.shape[1:]))
    wide = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)])
    H, W = images.shape[1:3]
    for k in range(count):
        down, right = rng.integers(0, 5, 2)
        many[k] = wide[k % len(images), down : down + H, right : right + W] * rng.uniform(0.7, 1.0)
    many.flush()


def timed(function: Any, spent: dict[str, float], name: str) -> Any:
    def call(*args: Any, **options: Any) -> Any:
        began = time.monotonic()
        found = function(*args, **options)
        spent[name] = time.monotonic() - began
        return found

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=1_000_000, help="training images")
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    known, test = data.load("mnist", "train"), data.load("mnist", "test")
    spent: dict[str, float] = {}
    spectral.spectral_groups = timed(spectral.spectral_groups, spent, "spectral clustering")
    seen: dict[str, list[float]] = {stage: [] for stage in STAGES}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        write_images(known.pixels, a.images * 10 // 9, path)  # one in ten is held out
        settings = {"autoencoder_epochs": 1, "epochs": 1, "min_steps": 0, "threads": a.threads}
        began = time.monotonic()
        train(
            path, Path(folder) / "run", callback=lambda line: seen[line["stage"]].append(time.monotonic()), **settings
        )
        ended = time.monotonic()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # kB on Linux; mapped files count
        on = CapsulePoE.load(Path(folder) / "run").encode(test.pixels).on.argmax(1)
    first, second = seen.values()
    spent = {
        "stage 1": first[-1] - began,
        "codes": second[0] - first[-1] - spent["spectral clustering"],
        **spent,
        "stage 2": second[-1] - second[0],
        "prior": ended - second[-1],
        "all": ended - began,
    }
    record = {
        "images": a.images,
        "threads": a.threads,
        "minutes": {name: round(seconds / 60, 2) for name, seconds in spent.items()},
        "peak_mb": memory,
        "purity of MNIST's test images": round(purity(on, test.labels), 4),
        "capspoe": __version__,
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n")
    print(OUT.read_text())


if __name__ == "__main__":
    main()
