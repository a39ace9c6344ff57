"""Measure the same work on a quiet machine and beside busy loops, one for each core.

    python -m benchmarks.speed.busy [--rounds 3]

The work is `CapsulePoE(...).fit` of the estimator on scikit-learn's digits. Every round measures each way of
waiting in a fresh process, quiet and busy; the medians count. "as shipped" is what `import capspoe` sets. The others
set OpenMP's variables first, which it then respects: "OpenMP's default" spins as GNU's OpenMP does on its own.
Start it when nothing else runs.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks import records
from capspoe.threads import DECIDED

RECORD = "busy"
DEPENDS = ("threads.py", "kernels", "training")
TARGET = 2.0  # busy over quiet, at most
WAYS = {
    "as shipped": {},
    "OpenMP's default": {"GOMP_SPINCOUNT": "300000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
WORK = """
import time
from sklearn.datasets import load_digits
from capspoe.sklearn import CapsulePoE
digits = load_digits().data
CapsulePoE(n_components=15, n_neurons=8, n_iter=1, config={"min_steps": 1}).fit(digits[:100])  # loads and compiles
model = CapsulePoE(n_components=15, n_neurons=8, n_iter=3, config={"min_steps": 200})
start = time.perf_counter()
model.fit(digits)
print(time.perf_counter() - start)
"""


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Other programs that never rest."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def seconds(way: dict[str, str]) -> float:
    """How long the work takes in a fresh process with these variables."""
    environment = {name: value for name, value in os.environ.items() if name not in DECIDED}
    command = [sys.executable, "-c", WORK]
    done = subprocess.run(command, env=environment | way, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    quiet: dict[str, list[float]] = {name: [] for name in WAYS}
    busy: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(options.rounds):
        for name, way in WAYS.items():
            quiet[name].append(seconds(way))
        with busy_loops(cores):
            for name, way in WAYS.items():
                busy[name].append(seconds(way))
    rows = []
    for name in WAYS:
        row = {
            "waiting": name,
            "quiet_s": statistics.median(quiet[name]),
            "busy_s": statistics.median(busy[name]),
            "all_quiet_s": quiet[name],
            "all_busy_s": busy[name],
        }
        rows.append(row)
        ratio = row["busy_s"] / row["quiet_s"]
        reached = "reached" if ratio <= TARGET else "missed"
        print(
            f"{name:<17} quiet {row['quiet_s']:5.1f} s  busy {row['busy_s']:5.1f} s  ratio {ratio:4.1f} ({reached})"
        )
    machine = {"cores": cores, "load_before": load, "busy_loops": cores}
    print(records.write(RECORD, {"machine": machine, "target": TARGET, "rows": rows}, DEPENDS))


if __name__ == "__main__":
    main()
