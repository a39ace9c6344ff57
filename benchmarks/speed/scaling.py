"""Measure the training speed with two threads and with two processes, against one of each.

    python -m benchmarks.speed.scaling [--rounds 2] [--limit 12800] [OPTION OF capspoe train ...]

They take turns, and the best round of each counts. Prints a table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import records

RECORD = "scaling"
DEPENDS = (*records.TRAINING, "distributed.py")
WAYS = {  # processes, threads of each
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (1, 2),
    "2 processes, 1 thread each": (2, 1),
}
ONE = "1 process, 1 thread"
STAGES = ("autoencoder", "capsules-0")
MACHINE = ("capspoe", "python", "torch", "numpy", "platform", "processor", "cores")  # of environment.json
Speeds = dict[str, float]  # images a second of each stage, and the seconds of the whole command


class Measured(NamedTuple):
    """The best round of each way, and the machine."""

    best: dict[str, Speeds]
    machine: dict[str, Any]


def launcher(processes: int) -> list[str]:
    """PyTorch's launcher of several processes on this machine."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*start, "--nproc-per-node", str(processes)]


def training_command(way: str, folder: Path, options: list[str]) -> list[str]:
    processes, threads = WAYS[way]
    start = [sys.executable] if processes == 1 else launcher(processes)
    return [*start, "-m", "capspoe", "train", *options, "--threads", str(threads), "--out", str(folder)]


def stage_speeds(folder: Path) -> Speeds:
    """Images a second of each stage: the mean over the lines of metrics.jsonl, without the first."""
    rates: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        if metrics["stage"] in rates:
            rates[metrics["stage"]].append(metrics["images_per_second"])
    return {stage: statistics.harmonic_mean(own[1:] or own) for stage, own in rates.items()}


def measure_once(way: str, options: list[str]) -> tuple[Speeds, dict[str, Any]]:
    """The speeds of one training, and its environment.json."""
    _, threads = WAYS[way]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment.pop("NUMBA_NUM_THREADS", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        began = time.monotonic()
        subprocess.run(training_command(way, folder, options), check=True, env=environment, capture_output=True)
        seconds = time.monotonic() - began
        machine = json.loads((folder / "environment.json").read_text())
        return {**stage_speeds(folder), "seconds": round(seconds, 1)}, machine


def better(one: Speeds, other: Speeds) -> Speeds:
    best = {stage: max(one[stage], other[stage]) for stage in STAGES}
    best["seconds"] = min(one["seconds"], other["seconds"])
    return best


def measure(rounds: int, options: list[str]) -> Measured:
    console = Console(stderr=True)
    best: dict[str, Speeds] = {}
    machine: dict[str, Any] = {}
    for number in range(rounds):
        for way in WAYS:
            console.print(f"[dim]{number + 1}/{rounds} {way} ...[/dim]", highlight=False)
            speeds, environment = measure_once(way, options)
            best[way] = better(best.get(way, speeds), speeds)
            machine = {name: environment[name] for name in MACHINE}
    return Measured(best, machine)


def ratios(best: dict[str, Speeds]) -> dict[str, Speeds]:
    """The speed of each way over that of one process with one thread; 2 is all that two cores can give."""
    one = best[ONE]
    relative = {}
    for way, speeds in best.items():
        relative[way] = {stage: round(speeds[stage] / one[stage], 2) for stage in STAGES}
        relative[way]["seconds"] = round(one["seconds"] / speeds["seconds"], 2)
    return relative


def speeds_table(best: dict[str, Speeds]) -> Table:
    table = Table("")
    for title in ("stage 1, images/s", "", "stage 2, images/s", "", "whole command, s", ""):
        table.add_column(title, justify="right")
    relative = ratios(best)
    for way, speeds in best.items():
        cells = [way]
        for key in (*STAGES, "seconds"):
            cells.append(f"{speeds[key]:,.0f}")
            cells.append(f"{relative[way][key]:.2f}x")
        table.add_row(*cells)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often each way is timed; the best counts")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--limit", type=int, default=12800, help="images")
    parser.add_argument("--batch-size", type=int, default=128)
    options, more = parser.parse_known_args(arguments)
    training = [options.data, "--limit", str(options.limit), "--epochs", "2", "--autoencoder-epochs", "1"]
    training += ["--min-steps", "0", "--batch-size", str(options.batch_size), *more]
    measured = measure(options.rounds, training)
    Console(width=120).print(speeds_table(measured.best))
    content = {
        "machine": measured.machine,
        "rounds": options.rounds,
        "options": training,
        "best": measured.best,
        "ratios": ratios(measured.best),
    }
    print(records.write(RECORD, content, DEPENDS))


if __name__ == "__main__":
    main()
