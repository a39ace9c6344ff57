"""Install the wheel in dist/ into an empty environment outside the checkout, and use it there.

    python .ci/smoke.py [--constraint constraints.txt] [--sbom FOLDER] python3.11 python3.12 ...

Interpreters that are not on this machine are skipped; at least one must be there. With --sbom, the packages of the
first environment are listed: FOLDER/capspoe.cdx.json (CycloneDX) and FOLDER/licences.md.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[1]
TINY = ["--limit", "256", "--channels", "8", "--layers", "4x6", "--min-steps", "0", "--threads", "1"]
TINY += ["--autoencoder-epochs", "1", "--epochs", "1"]
USE = """
import sys
from pathlib import Path

import numpy as np
import capspoe
from capspoe.sklearn import CapsulePoE

assert Path(capspoe.__file__).is_relative_to(sys.prefix), capspoe.__file__
samples = np.load("samples.npz")
assert samples["images"].shape == (4, 3, 28, 28, 1), samples["images"].shape
assert "<html" in Path("run/report.html").read_text(encoding="utf-8")
X = np.random.default_rng(0).random((60, 8, 8), np.float32)
estimator = CapsulePoE(n_components=3, n_iter=1, config={"channels": 8, "min_steps": 2}).fit(X)
assert estimator.transform(X).shape == (60, 48)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--constraint", type=Path, help="versions of the dependencies")
    parser.add_argument("--sbom", type=Path, help="where to list the packages and their licences")
    parser.add_argument("pythons", nargs="+", help="interpreters")
    a = parser.parse_args()
    (wheel,) = (ROOT / "dist").glob("*.whl")
    sbom, tried = a.sbom, 0
    for python in a.pythons:
        if not works(python):
            print(f"smoke: {python} is not on this machine", flush=True)
            continue
        with tempfile.TemporaryDirectory() as name:
            bin = install(python, wheel, a.constraint, Path(name))
            use(bin, Path(name), wheel.name.split("-")[1])
            if sbom:
                list_packages(bin, sbom)
        sbom, tried = None, tried + 1
        print(f"smoke: {wheel.name} works with {python}", flush=True)
    if not tried:
        sys.exit("smoke: none of these interpreters is on this machine")


def works(python: str) -> bool:
    found = shutil.which(python)
    return found is not None and subprocess.run([found, "--version"], capture_output=True).returncode == 0


def environment() -> dict[str, str]:
    """This process's, without what points back at the checkout."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def run(*command: object, folder: Path) -> str:
    words = [str(word) for word in command]
    print("smoke: $", " ".join(words), flush=True)
    done = subprocess.run(words, cwd=folder, env=environment(), text=True, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"smoke: failed with {done.returncode}: {' '.join(words)}\n{done.stdout}")
    return done.stdout


def install(python: str, wheel: Path, constraint: Path | None, folder: Path) -> Path:
    run(python, "-m", "venv", folder / "venv", folder=folder)
    bin = folder / "venv" / "bin"
    pins = ["--constraint", constraint.resolve()] if constraint else []
    run(bin / "python", "-m", "pip", "install", "--quiet", *pins, wheel, folder=folder)
    return bin


def use(bin: Path, folder: Path, version: str) -> None:
    """Train, sample, report, explore, and the estimator."""
    assert run(bin / "capspoe", "--version", folder=folder) == f"capspoe {version}\n"
    run(bin / "capspoe", "train", "digits", *TINY, "--out", "run", folder=folder)
    run(bin / "capspoe", "sample", "run", "--each", "3", "--out", "samples.npz", folder=folder)
    run(bin / "capspoe", "report", "run", folder=folder)
    explore(bin, folder)
    run(bin / "python", "-c", USE, folder=folder)


def explore(bin: Path, folder: Path) -> None:
    """Start the explorer, ask for its page, and stop it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [bin / "capspoe", "explore", "run", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(command, cwd=folder, env=environment())
    try:
        end = time.monotonic() + 120
        while True:
            assert server.poll() is None, "the explorer stopped"
            assert time.monotonic() < end, "the explorer does not answer"
            try:
                with urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
                    assert b"<html" in answer.read()
                break
            except URLError:
                time.sleep(0.2)
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0, server.returncode
    finally:
        server.kill()
        server.wait()


def list_packages(bin: Path, folder: Path) -> None:
    """What the environment holds, as a CycloneDX bill of materials and as a table of licences."""
    folder.mkdir(parents=True, exist_ok=True)
    here = Path(sys.executable).parent
    python, whole = bin / "python", folder.resolve()
    project = ["--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible"]
    run(here / "cyclonedx-py", "environment", *project, "-o", whole / "capspoe.cdx.json", python, folder=ROOT)
    table = ["--format", "markdown", "--with-urls", "--output-file", whole / "licences.md"]
    run(here / "pip-licenses", "--python", python, *table, folder=ROOT)


if __name__ == "__main__":
    main()
