"""Spectral clustering of many codes: seconds, peak memory and purity, for docs/scale.md.

python benchmarks/grouping.py RUN [--codes 1000000] [--jitter 0.1] [--threads 2] [--search exact]

The codes are those of the run's training images, repeated as often as needed. Gaussian noise with a standard
deviation of --jitter makes all of them different. Each keeps the label of its image, for the purity of the groups;
the grouping does not see it. Prints a line and adds it to benchmarks/records/grouping.json.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from capspoe import CapsulePoE, __version__, data
from capspoe.train import spectral
from capspoe.train.codes import codes_in_memory

OUT = Path(__file__).resolve().parent / "records" / "grouping.json"
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


def purity(groups: np.ndarray, labels: np.ndarray) -> float:
    table = np.zeros((groups.max() + 1, labels.max() + 1), np.int64)
    np.add.at(table, (groups, labels), 1)
    return float(table.max(1).sum() / len(labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path, help="a run on a data set with labels")
    parser.add_argument("--codes", type=int, default=1_000_000)
    parser.add_argument("--jitter", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--search", choices=["exact", "approximate"], default="approximate")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    spectral.EXACT_IMAGES = a.codes if a.search == "exact" else 0
    model = CapsulePoE.load(a.run)
    images = data.load(model.config.data, "train")
    if images.labels is None:
        parser.error("the data set of this run has no labels")
    with tempfile.TemporaryDirectory() as folder:
        few = codes_in_memory(model, images.pixels)
        codes = jittered(few, a.codes, a.jitter, Path(folder) / "codes.npy")
        del few
        began, busy = time.monotonic(), time.process_time()
        groups = spectral.spectral_groups(codes, model.top.upper[0])
        seconds, processor = time.monotonic() - began, time.process_time() - busy
    line = {
        "codes": a.codes,
        "search": a.search,
        "threads": a.threads,
        "jitter": a.jitter,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,  # kB on Linux; mapped codes count
        "purity": None
        if groups is None
        else round(purity(groups, images.labels[np.arange(a.codes) % len(images.labels)]), 4),
        "capspoe": __version__,
    }
    print(json.dumps(line))
    lines = json.loads(OUT.read_text()) if OUT.exists() else []
    OUT.write_text("[\n " + ",\n ".join(map(json.dumps, [*lines, line])) + "\n]\n")


if __name__ == "__main__":
    main()
