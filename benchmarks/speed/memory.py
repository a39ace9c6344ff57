"""Peak memory of training (each stage separately), sampling and evaluation, each in its own process.

    python benchmarks/memory.py [--data mnist] [--run RUN] [OPTION OF capspoe train ...]

Trains on DATA with the given options. Few epochs are enough: the peak does not grow with them, but with the images,
the channels and the capsules. The training is stopped after the autoencoder and resumed by a second process, so that
each stage has its own peak. With --run nothing is trained, and a copy of a finished run is used.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Nothing large is imported here: the peak of a process starts from the memory of its parent.
UNIT = 1 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss


def peak(*arguments: str, stop_at: Path | None = None) -> tuple[float, float]:
    """(MB, seconds) of one command; it is stopped as soon as the file `stop_at` exists."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "capspoe", *arguments], stdout=subprocess.DEVNULL)
    told, pid = False, 0
    while pid == 0:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if stop_at and stop_at.exists() and not told:
            process.send_signal(signal.SIGTERM)
            told = True
        time.sleep(0.05)
    code = process.returncode = os.waitstatus_to_exitcode(status)
    if code != (130 if told else 0):
        sys.exit(f"capspoe {' '.join(arguments)}: ended with {code}")
    return usage.ru_maxrss * UNIT / 1e6, time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--parts", default="train,sample,evaluate")
    a, training = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        train = ["train", a.data, "--out", str(run), *training]
        if a.run:
            shutil.copytree(a.run, run, ignore=shutil.ignore_patterns("evaluation*"))
        elif "train" in a.parts:
            report("training, stage 1", *train, stop_at=run / "codes.npy")
            report("training, stage 2", *train)
        for count in (10, 1000) if "sample" in a.parts else ():
            out = f"{place}/{count}.npz"
            report(f"sampling, {count} a capsule", "sample", str(run), "--out", out, "--count", str(count))
        if "evaluate" in a.parts:
            report("evaluation, --quick", "evaluate", str(run), "--quick")


def report(what: str, *command: str, stop_at: Path | None = None) -> None:
    megabytes, seconds = peak(*command, stop_at=stop_at)
    print(f"{what:24} {megabytes:6.0f} MB {seconds:6.0f} s", flush=True)


if __name__ == "__main__":
    main()
