"""Train on more images than fit in memory: a file several times as large as the process's limit.

    python examples/more_than_memory.py [--limit 800] [--times 4] [--folder DIR]

This writes an .npy of random landscapes of 256x256 pixels, then starts two processes with limited memory (in MB). The
first loads the whole file and fails. The second trains on random crops of 20x20 pixels.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIDE = 256
LOAD_ALL = "import numpy, sys; numpy.load(sys.argv[1])"
TRAIN = """
import re, sys
import capspoe

capspoe.train(
    sys.argv[1], out=sys.argv[2], crop=20, channels=8, layers="4x6", autoencoder_epochs=1, epochs=1,
    min_steps=0, prior_components=2, threads=1,
)
status = open("/proc/self/status").read()
print("peak resident memory, mapped files included:", int(re.search(r"VmHWM:\\s+(\\d+)", status)[1]) // 1024, "MB")
"""


def write_landscapes(path: Path, count: int) -> None:
    """Smooth random images: 64 different ones, shifted and rotated."""
    rng = np.random.default_rng(0)
    waves = rng.normal(size=(64, 6, 6)) / (1 + np.add.outer(np.arange(6), np.arange(6)))
    angle = np.outer(np.arange(6), np.linspace(0, np.pi, SIDE))
    heights = np.einsum("kab,ax,by->kxy", waves, np.cos(angle), np.cos(angle))
    some = (255 / (1 + np.exp(-3 * heights))).astype(np.uint8)
    array = np.lib.format.open_memmap(path, "w+", np.uint8, (count, SIDE, SIDE))
    header = path.stat().st_size - array.nbytes
    del array
    with path.open("r+b") as file:
        file.seek(header)
        for start in range(0, count, 64):
            rotated = np.rot90(np.roll(some, start, axis=1), start // 64, axes=(1, 2))
            file.write(rotated[: count - start].tobytes())


def under_limit(code: str, megabytes: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process with limited private memory; mapped files do not count."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (megabytes << 20, megabytes << 20))

    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, preexec_fn=limit, stderr=subprocess.PIPE, text=True, check=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=800, help="memory limit of the processes, in MB")
    parser.add_argument("--times", type=float, default=4, help="size of the file, as a multiple of the limit")
    parser.add_argument("--folder", type=Path, help="folder for the file (default: a temporary one)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        path = Path(name) / "images.npy"
        count = int(options.times * (options.limit << 20) / SIDE**2)
        write_landscapes(path, count)
        size = path.stat().st_size >> 20
        print(f"{count:,} images, {size:,} MB, for processes of {options.limit} MB", flush=True)
        whole = under_limit(LOAD_ALL, options.limit, path)
        if "MemoryError" not in whole.stderr:
            sys.exit("the file fits in memory; choose a larger --times")
        print("loading the whole file: out of memory", flush=True)
        trained = under_limit(TRAIN, options.limit, path, Path(name) / "run")
        if trained.returncode:
            sys.exit(f"training failed:\n{trained.stderr}")
        print("training on it: done")


if __name__ == "__main__":
    main()
