"""Measure how well several objects at once, and damaged ones, are explained.

    python -m benchmarks.quality.scenes RUN [--count 300] [--seed 0] [--only ROW ...]

Every row explains the same scenes of test images, by seed. A capsule is named by the most common label of the
training images for which it is on; labels are used for nothing else, except by the supervised networks. Rows are
added to the record scenes-DATA-SEED one by one; rows on record with as many scenes are skipped. Afterwards
`python -m benchmarks.pages.scenes` writes docs/scenes.md from the records.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import records
from benchmarks.quality.scenes.bench import Bench
from benchmarks.quality.scenes.data import Scenes, make_scenes, score
from benchmarks.quality.scenes.rows import ROWS, Row
from capspoe import kernels

DEPENDS = (*records.TRAINING, "infer")


def measure(bench: Bench, rows: list[Row], count: int | None) -> None:
    """Add rows to the record, with `count` scenes or as many as each row wants."""
    name = f"scenes-{bench.model.config.data}-{bench.seed}"
    record = records.read(name, default={})
    for row in rows:
        wanted = count or row.count
        if row.name in record and record[row.name]["scenes"] >= wanted:
            continue
        scenes = make_scenes(bench.test, row.kind, wanted, bench.seed)
        # Kernels, decoders and baselines are made once, and not timed.
        two_scenes = Scenes(scenes.images[:2], scenes.objects[:2], scenes.labels[:2])
        row.answer(bench, two_scenes)
        began = time.process_time()
        scores = score(scenes, row.answer(bench, scenes))
        scores["cpu_seconds"] = (time.process_time() - began) / wanted
        record[row.name] = {"scenes": wanted} | {key: round(value, 4) for key, value in scores.items()}
        records.write(name, record, DEPENDS, extends=True)
        print(row.name, record[row.name], flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--count", type=int, help="scenes of every row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", metavar="ROW", help="names of rows; default: all of the data set")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    # So few images are explained before the kernels would be compiled.
    with kernels.use("reference"):
        bench = Bench(options.run, options.seed)
        if options.only:
            rows = [row for row in ROWS if row.name in options.only]
        else:
            rows = [row for row in ROWS if row.data == bench.model.config.data]
        measure(bench, rows, options.count)


if __name__ == "__main__":
    main()
