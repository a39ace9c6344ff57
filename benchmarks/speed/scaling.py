"""Training speed with two threads and with two processes, against one of each: the commands of docs/scale.md.

python benchmarks/scaling.py [--rounds 2] [--limit 12800] [OPTIONS of capspoe train]
python benchmarks/scaling.py --exchange [--rounds 2] [--limit 12800]

They take turns, and the best round of each counts. Prints a table and writes benchmarks/records/scaling.json.

--exchange times a step of stage 2 with 1 and 2 processes of one thread each, at two batch sizes, and the part of it
that is the all-reduce, with the wait for the other process. It writes
benchmarks/records/exchange.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
WAYS = {  # processes, threads of each
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (1, 2),
    "2 processes, 1 thread each": (2, 1),
}
STAGES = {"autoencoder": "stage 1", "capsules-0": "stage 2"}

MACHINE = ("capspoe", "python", "torch", "numpy", "platform", "processor", "cores")  # of environment.json


def command(processes: int, threads: int, folder: Path, options: list[str]) -> list[str]:
    start = [sys.executable, "-m"]
    if processes > 1:
        start += ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    return [*start, "capspoe", "train", *options, "--threads", str(threads), "--out", str(folder)]


def speeds(folder: Path) -> dict[str, float]:
    """Images a second of each stage: the mean over the lines of metrics.jsonl, without the first."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = {stage: [line["images_per_second"] for line in lines if line["stage"] == stage] for stage in STAGES}
    return {stage: statistics.harmonic_mean(rates[1:] or rates) for stage, rates in found.items()}


def measure_once(way: str, options: list[str]) -> tuple[dict[str, float], dict[str, object]]:
    """Images a second of both stages with the seconds of the whole command, and environment.json."""
    processes, threads = WAYS[way]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    environment.pop("NUMBA_NUM_THREADS", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        began = time.monotonic()
        subprocess.run(
            command(processes, threads, folder, options),
            check=True,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.monotonic() - began
        machine = json.loads((folder / "environment.json").read_text())
        return {**speeds(folder), "seconds": round(seconds, 1)}, machine


def measure(rounds: int, options: list[str]) -> tuple[dict[str, dict[str, float]], dict[str, object]]:
    """The best of the rounds for each way, and the machine."""
    console, machine = Console(stderr=True), {}
    best: dict[str, dict[str, float]] = {}
    for number in range(rounds):
        for way in WAYS:
            console.print(f"[dim]{number + 1}/{rounds} {way} ...[/dim]", highlight=False)
            found, environment = measure_once(way, options)
            machine = {name: environment[name] for name in MACHINE}
            before = best.get(way, found)
            best[way] = {stage: max(before[stage], found[stage]) for stage in STAGES}
            best[way]["seconds"] = min(before["seconds"], found["seconds"])
    return best, machine


def timed_training(out: Path, limit: int, batch_size: int) -> None:
    """Train in this process or as one of several; process 0 writes the milliseconds of a step of stage 2."""
    from capspoe import distributed, train

    spent, size, marks = 0.0, 0, []
    all_reduce = distributed.all_reduce

    def timed(*tensors: Any) -> None:
        nonlocal spent, size
        began = time.perf_counter()
        all_reduce(*tensors)
        spent += time.perf_counter() - began
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def mark(line: dict[str, Any]) -> None:
        if line["stage"] == "capsules-0":
            marks.append((line["step"], time.perf_counter(), spent, size))

    distributed.all_reduce = timed
    settings = {
        "limit": limit,
        "batch_size": batch_size,
        "autoencoder_epochs": 1,
        "min_steps": 0,
        "threads": 1,
    }
    train("mnist", out / "run", quiet=True, callback=mark, epochs=2 * batch_size // 128, **settings)
    if marks:
        (first, began, before, _), (last, ended, after, size) = marks[0], marks[-1]
        steps = last - first  # without the first line, in which kernels are compiled
        step, exchange = (1000 * seconds / steps for seconds in (ended - began, after - before))
        found = {"step_ms": round(step, 2), "exchange_ms": round(exchange, 2), "bytes": size}
        (out / "times.json").write_text(json.dumps(found))


def measure_exchange(rounds: int, limit: int) -> list[dict[str, Any]]:
    """The best round for each number of processes and batch size."""
    rows = {}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ways = [(processes, batch) for batch in (128, 1024) for processes in (1, 2)]
    for _ in range(rounds):
        for way in ways:
            with tempfile.TemporaryDirectory() as name:
                start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
                start += ["--nproc-per-node", str(way[0])]
                own = [__file__, "--worker", name, "--limit", str(limit), "--batch-size", str(way[1])]
                subprocess.run([*start, *own], check=True, env=environment)
                found = json.loads((Path(name) / "times.json").read_text())
            row = {"processes": way[0], "batch_size": way[1], **found}
            rows[way] = min(rows.get(way, row), row, key=lambda row: row["step_ms"])
    return [rows[way] for way in ways]


def ratios(best: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """The speed of each way over that of one process with one thread; 2 is all that two cores can give."""
    one = best["1 process, 1 thread"]
    return {
        way: {
            **{stage: round(found[stage] / one[stage], 2) for stage in STAGES},
            "seconds": round(one["seconds"] / found["seconds"], 2),
        }
        for way, found in best.items()
    }


def table(best: dict[str, dict[str, float]]) -> Table:
    out = Table()
    for name in ("", "stage 1, images/s", "", "stage 2, images/s", "", "whole command, s", ""):
        out.add_column(name, justify="right" if name or out.columns else "left")
    for (way, found), ratio in zip(best.items(), ratios(best).values(), strict=True):
        cells = [text for key in found for text in (f"{found[key]:,.0f}", f"{ratio[key]:.2f}x")]
        out.add_row(way, *cells)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often each way is timed; the best counts")
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--limit", type=int, default=12800, help="images")
    parser.add_argument("--out", type=Path, default=HERE / "records" / "scaling.json")
    parser.add_argument("--exchange", action="store_true", help="time the exchange of stage 2")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--batch-size", type=int, default=128)
    a, more = parser.parse_known_args()
    if a.worker:
        timed_training(a.worker, a.limit, a.batch_size)
        return
    if a.exchange:
        rows = "[\n " + ",\n ".join(map(json.dumps, measure_exchange(a.rounds, a.limit))) + "\n]\n"
        (HERE / "records" / "exchange.json").write_text(rows)
        print(rows)
        return
    options = [a.data, "--limit", str(a.limit), "--epochs", "2", "--autoencoder-epochs", "1"]
    options += ["--min-steps", "0", "--batch-size", str(a.batch_size), *more]
    best, machine = measure(a.rounds, options)
    Console(width=120).print(table(best))
    found = {"machine": machine, "rounds": a.rounds, "options": options, "best": best, "ratios": ratios(best)}
    a.out.write_text(json.dumps(found, indent=1) + "\n")
    print(a.out)


if __name__ == "__main__":
    main()
