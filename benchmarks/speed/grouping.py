"""Measure spectral clustering of many codes: seconds, peak memory and purity.

    python -m benchmarks.speed.grouping RUN [--codes 1000000] [--jitter 0.1] [--threads 2] [--search exact]

The codes are those of the run's training images, repeated as often as needed. Gaussian noise with a standard
deviation of --jitter makes all of them different. Each keeps the label of its image, for the purity of the groups;
the grouping does not see it. Adds a row to the record.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import records
from capspoe import CapsulePoE, data
from capspoe.evaluate.clustering import clustering_scores
from capspoe.training import spectral
from capspoe.training.codes import codes_in_memory

RECORD = "grouping"
DEPENDS = ("training",)
BLOCK = 10_000


def jittered(codes: np.ndarray, count: int, jitter: float, path: Path) -> np.ndarray:
    """A memory-mapped file of `count` codes: the given ones, repeated with noise."""
    many = np.lib.format.open_memmap(path, "w+", np.float16, (count, *codes.shape[1:]))
    rng = np.random.default_rng(0)
    for start in range(0, count, BLOCK):
        index = np.arange(start, min(start + BLOCK, count)) % len(codes)
        noise = jitter * rng.standard_normal((len(index), *codes.shape[1:]), np.float32)
        many[start : start + len(index)] = np.clip(codes[index] + noise, 0, 1)
    many.flush()
    return np.load(path, mmap_mode="r")


def peak_megabytes() -> int:
    """Peak resident memory of this process, mapped files included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # kB on Linux


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run on a data set with labels")
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--jitter", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--search", choices=["exact", "approximate"], default="approximate")
    options = parser.parse_args(arguments)
    model = CapsulePoE.load(options.run)
    images = data.load(model.config.data, "train")
    if images.labels is None:
        parser.error("the data set of this run has no labels")
    torch.set_num_threads(options.threads)
    # The search is exact up to this number of codes.
    spectral.EXACT_IMAGES = options.codes if options.search == "exact" else 0
    count = model.top.upper[0]
    with tempfile.TemporaryDirectory() as folder:
        # Not kept in a variable: the peak should be that of the clustering.
        codes = jittered(
            codes_in_memory(model, images.pixels), options.codes, options.jitter, Path(folder) / "codes.npy"
        )
        began = time.monotonic()
        began_busy = time.process_time()
        groups = spectral.spectral_groups(codes, count)
        seconds = time.monotonic() - began
        processor_seconds = time.process_time() - began_busy
    purity = None
    if groups is not None:
        labels = images.labels[np.arange(options.codes) % len(images.labels)]
        purity = round(clustering_scores(groups, labels, count, int(labels.max()) + 1)["purity"], 4)
    row = {
        "codes": options.codes,
        "search": options.search,
        "threads": options.threads,
        "jitter": options.jitter,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor_seconds, 1),
        "peak_mb": peak_megabytes(),
        "purity": purity,
    }
    print(json.dumps(row))
    records.write(RECORD, [*records.read(RECORD, default=[]), row], DEPENDS, extends=True)


if __name__ == "__main__":
    main()
