"""Measure the same work on a quiet machine and beside busy loops, one for each core.

    python -m benchmarks.speed.busy [--rounds 3]

The work is `CapsulePoE(...).fit` of the estimator on scikit-learn's digits. Every round measures each way in a fresh
process, quiet and busy; the medians count. "as shipped" trains such a small network with one thread. The others ask
for a thread on each core, with the brief spin or with that of GNU's OpenMP; they can take minutes, and are measured
in the first round only. Start it when nothing else runs.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks import records
from capspoe.threads import BRIEFLY, DECIDED

RECORD = "busy"
DEPENDS = ("threads.py", "kernels", "training")
TARGET = 2.0  # busy over quiet, at most
CORES = os.cpu_count() or 1
SHIPPED = "as shipped"
WAYS: dict[str, dict[str, str]] = {  # settings of the work, and variables of its environment
    SHIPPED: {},
    "all cores, brief spin": {"THREADS": str(CORES), **BRIEFLY},
    "all cores, OpenMP's spin": {"THREADS": str(CORES), "GOMP_SPINCOUNT": "300000"},
}
WORK = """
import os
import time
from sklearn.datasets import load_digits
from capspoe.sklearn import CapsulePoE
digits = load_digits().data
CapsulePoE(n_components=15, n_neurons=8, n_iter=1, config={"min_steps": 1}).fit(digits[:100])  # loads and compiles
settings = {"min_steps": 200}
if "THREADS" in os.environ:
    settings["threads"] = int(os.environ["THREADS"])
model = CapsulePoE(n_components=15, n_neurons=8, n_iter=3, config=settings)
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
    environment = {name: value for name, value in os.environ.items() if name not in (*DECIDED, "OMP_NUM_THREADS")}
    command = [sys.executable, "-c", WORK]
    done = subprocess.run(command, env=environment | way, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    quiet: dict[str, list[float]] = {name: [] for name in WAYS}
    busy: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(options.rounds):
        ways = {name: way for name, way in WAYS.items() if number == 0 or name == SHIPPED}
        for name, way in ways.items():
            quiet[name].append(seconds(way))
        with busy_loops(CORES):
            for name, way in ways.items():
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
            f"{name:<25} quiet {row['quiet_s']:5.1f} s  busy {row['busy_s']:5.1f} s  ratio {ratio:4.1f} ({reached})"
        )
    machine = {"cores": CORES, "load_before": load, "busy_loops": CORES}
    print(records.write(RECORD, {"machine": machine, "target": TARGET, "rows": rows}, DEPENDS))


if __name__ == "__main__":
    main()
