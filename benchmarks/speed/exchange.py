"""Measure what the exchange between processes costs a step of stage 2.

    python -m benchmarks.speed.exchange [--rounds 2] [--limit 12800]

Times a step with 1 and 2 processes of one thread each, at two batch sizes, and the part of it that is the all-reduce,
with the wait for the other process. The ways take turns, and the best round of each counts.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import records
from benchmarks.speed.scaling import launcher
from capspoe import distributed
from capspoe.run.train import train

RECORD = "exchange"
DEPENDS = (*records.TRAINING, "distributed.py")
MODULE = "benchmarks.speed.exchange"
WAYS = ((1, 128), (2, 128), (1, 1024), (2, 1024))  # processes, batch size


class Mark(NamedTuple):
    """A line of the log of stage 2."""

    step: int
    time: float
    exchanging: float  # seconds so far
    bytes: int  # of the last exchange


class TimedExchange:
    """`distributed.all_reduce` with a clock."""

    def __init__(self) -> None:
        self.all_reduce = distributed.all_reduce
        self.seconds = 0.0
        self.bytes = 0  # of the last exchange

    def __call__(self, *tensors: Any) -> None:
        began = time.perf_counter()
        self.all_reduce(*tensors)
        self.seconds += time.perf_counter() - began
        self.bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def train_timed(out: Path, limit: int, batch_size: int) -> None:
    """Train in this process or as one of several; process 0 writes the milliseconds of a step of stage 2."""
    exchange = TimedExchange()
    distributed.all_reduce = exchange
    marks: list[Mark] = []

    def mark(line: dict[str, Any]) -> None:
        if line["stage"] == "capsules-0":
            marks.append(Mark(line["step"], time.perf_counter(), exchange.seconds, exchange.bytes))

    settings = {
        "limit": limit,
        "batch_size": batch_size,
        "epochs": 2 * batch_size // 128,
        "autoencoder_epochs": 1,
        "min_steps": 0,
        "threads": 1,
    }
    train("mnist", out / "run", quiet=True, callback=mark, **settings)
    if not marks:  # only process 0 logs
        return
    # Without the steps before the first line, in which kernels are compiled.
    first = marks[0]
    last = marks[-1]
    steps = last.step - first.step
    if steps == 0:
        sys.exit("the log of stage 2 has one line only; give a larger --limit")
    step_ms = 1000 * (last.time - first.time) / steps
    exchange_ms = 1000 * (last.exchanging - first.exchanging) / steps
    times = {"step_ms": round(step_ms, 2), "exchange_ms": round(exchange_ms, 2), "bytes": last.bytes}
    (out / "times.json").write_text(json.dumps(times))


def measure_once(processes: int, batch_size: int, limit: int) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        worker = ["-m", MODULE, "--worker", folder, "--limit", str(limit), "--batch-size", str(batch_size)]
        subprocess.run([*launcher(processes), *worker], check=True, env=environment, cwd=records.ROOT)
        times = json.loads((Path(folder) / "times.json").read_text())
    return {"processes": processes, "batch_size": batch_size, **times}


def measure(rounds: int, limit: int) -> list[dict[str, Any]]:
    """The best round for each number of processes and batch size."""
    best: dict[tuple[int, int], dict[str, Any]] = {}
    for _ in range(rounds):
        for way in WAYS:
            row = measure_once(*way, limit)
            if way not in best or row["step_ms"] < best[way]["step_ms"]:
                best[way] = row
    return [best[way] for way in WAYS]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often each way is timed; the best counts")
    parser.add_argument("--limit", type=int, default=12800, help="images")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch-size", type=int, default=128, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker:
        train_timed(options.worker, options.limit, options.batch_size)
        return
    rows = measure(options.rounds, options.limit)
    for row in rows:
        print(json.dumps(row))
    print(records.write(RECORD, rows, DEPENDS))


if __name__ == "__main__":
    main()
