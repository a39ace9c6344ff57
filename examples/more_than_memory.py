"""Train on more images than memory holds: a file several times as large as what the process may use.

    python examples/more_than_memory.py [--limit 800] [--times 4] [--folder DIR]

It writes an .npy of random landscapes, 256 x 256 pixels each, then starts two processes under a limit on their
memory (in MB). The first reads the file whole, and fails. The second trains on it, on random cut-outs of 20 x 20.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIDE = 256
READ_WHOLE = "import numpy, sys; numpy.load(sys.argv[1])"
TRAIN = """
import re, sys
import capspoe

capspoe.train(
    sys.argv[1], out=sys.argv[2], crop=20, channels=8, layers="4x6", autoencoder_epochs=1, epochs=1,
    least_steps=0, components=2, threads=1,
)
status = open("/proc/self/status").read()
print("peak resident, mapped files included:", int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) // 1024, "MB")
"""


def write_landscapes(path: Path, count: int) -> None:
    """Smooth random pictures: a few bumps each, 64 different ones shifted and turned."""
    rng = np.random.default_rng(0)
    waves = rng.normal(size=(64, 6, 6)) / (1 + np.add.outer(np.arange(6), np.arange(6)))
    angle = np.outer(np.arange(6), np.linspace(0, np.pi, SIDE))
    heights = np.einsum("kab,ax,by->kxy", waves, np.cos(angle), np.cos(angle))
    some = (255 / (1 + np.exp(-3 * heights))).astype(np.uint8)
    pictures = np.lib.format.open_memmap(path, "w+", np.uint8, (count, SIDE, SIDE))
    header = path.stat().st_size - pictures.nbytes
    del pictures
    with path.open("r+b") as file:
        file.seek(header)
        for start in range(0, count, 64):
            turned = np.rot90(np.roll(some, start, axis=1), start // 64, axes=(1, 2))
            file.write(turned[: count - start].tobytes())


def under_limit(code: str, megabytes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python code in a process that may not have more memory of its own; mapped files do not count."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))

    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, preexec_fn=limit, stderr=subprocess.PIPE, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=800, help="MB that the processes may use")
    parser.add_argument("--times", type=float, default=4, help="size of the file, in limits")
    parser.add_argument("--folder", type=Path, help="where to put the file (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        path = Path(name) / "images.npy"
        count = int(options.times * (options.limit << 20) / SIDE**2)
        write_landscapes(path, count)
        print(
            f"{count:,} images, {path.stat().st_size >> 20:,} MB, for processes of {options.limit} MB",
            flush=True,
        )
        whole = under_limit(READ_WHOLE, options.limit, path)
        if "MemoryError" not in whole.stderr:
            sys.exit("the file fits into memory: give a larger --times")
        print("reading it whole: out of memory", flush=True)
        trained = under_limit(TRAIN, options.limit, path, Path(name) / "run")
        if trained.returncode:
            sys.exit(f"training failed:\n{trained.stderr}")
        print("training on it: done")


if __name__ == "__main__":
    main()
