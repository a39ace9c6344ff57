"""Peak memory of training (each stage by itself), sampling and evaluation, each in a process of its own.

    python benchmarks/memory.py [--data mnist] [--run RUN] [OPTION OF capspoe train ...]

Trains on DATA with the options given, best with few epochs: the peak does not grow with them, but it does with the
images, the channels and the capsules. The training is stopped when the autoencoder is done and carried on by a second
process, so that each stage has a peak of its own. With --run nothing is trained, and a copy of a finished run is
looked at.
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

# Nothing large is imported here: what a process is said to have used at most begins with what its parent has.
UNIT = 1 if sys.platform == "darwin" else 1 << 10  # of ru_maxrss


def peak(*arguments: str, stop_at: Path | None = None) -> tuple[float, float]:
    """(MB, seconds) of one command; it is told to stop as soon as there is a file `stop_at`."""
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
            say("training, stage 1", *train, stop_at=run / "codes.npy")
            say("training, stage 2", *train)
        for count in (10, 1000) if "sample" in a.parts else ():
            out = f"{place}/{count}.npz"
            say(f"sampling, {count} a capsule", "sample", str(run), "--out", out, "--count", str(count))
        if "evaluate" in a.parts:
            say("evaluation, --quick", "evaluate", str(run), "--quick")


def say(what: str, *command: str, stop_at: Path | None = None) -> None:
    megabytes, seconds = peak(*command, stop_at=stop_at)
    print(f"{what:24} {megabytes:6.0f} MB {seconds:6.0f} s", flush=True)


if __name__ == "__main__":
    main()
