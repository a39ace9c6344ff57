"""Measure the peak memory of training (each stage separately), sampling and evaluation, each in its own process.

    python -m benchmarks.speed.memory [--data mnist] [--run RUN] [OPTION OF capspoe train ...]

Trains on DATA with the given options. Few epochs are enough: the peak does not grow with them, but with the images,
the channels and the capsules. The training is stopped after the autoencoder and resumed by a second process, so that
each stage has its own peak. With --run nothing is trained, and a copy of a finished run is used. Prints a table.
"""

# Nothing large is imported here: the peak of a process starts from the memory of its parent.
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

UNIT = 1 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss
INTERRUPTED = 130  # exit code
PARTS = ("train", "sample", "evaluate")


def peak(arguments: list[str], stop_at: Path | None) -> tuple[float, float]:
    """(MB, seconds) of one command; it is stopped as soon as the file `stop_at` exists."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "capspoe", *arguments], stdout=subprocess.DEVNULL)
    stopped = False
    pid = 0
    while pid == 0:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if stop_at and stop_at.exists() and not stopped:
            process.send_signal(signal.SIGTERM)
            stopped = True
        time.sleep(0.05)
    code = os.waitstatus_to_exitcode(status)
    process.returncode = code  # wait4 took it, so the Popen object cannot find out itself
    expected = INTERRUPTED if stopped else 0
    if code != expected:
        sys.exit(f"capspoe {' '.join(arguments)}: ended with {code}")
    return usage.ru_maxrss * UNIT / 1e6, time.monotonic() - began


def report(what: str, arguments: list[str], stop_at: Path | None = None) -> None:
    megabytes, seconds = peak(arguments, stop_at)
    print(f"{what:24} {megabytes:6.0f} MB {seconds:6.0f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options, training = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        if options.run:
            shutil.copytree(options.run, run, ignore=shutil.ignore_patterns("evaluation*"))
        elif "train" in options.parts:
            train = ["train", options.data, "--out", str(run), *training]
            report("training, stage 1", train, stop_at=run / "codes.npy")
            report("training, stage 2", train)
        if "sample" in options.parts:
            for count in (10, 1000):
                out = f"{place}/{count}.npz"
                report(f"sampling, {count} a capsule", ["sample", str(run), "--out", out, "--each", str(count)])
        if "evaluate" in options.parts:
            report("evaluation, --quick", ["evaluate", str(run), "--quick"])


if __name__ == "__main__":
    main()
