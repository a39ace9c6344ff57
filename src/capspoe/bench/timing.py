"""Time and memory of one thing or of several that take turns."""

import math
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from capspoe import kernels
from capspoe.capsules import CapsuleLayer

BATCH, LOWER, UPPER, ITERATIONS = 128, (576, 8), (20, 16), 3  # the paper's layer


def interleaved(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best time of each side in seconds, the sides taking turns after one round that does not count.

    In its turn a side runs twice, so that it finds its own weights in the cache as in any loop, and not its rival's.
    """
    best = dict.fromkeys(sides, math.inf)
    for turn in range(rounds + 1):
        for name, side in sides.items():
            for _ in range(2):
                start = time.perf_counter()
                side()
                if turn:
                    best[name] = min(best[name], time.perf_counter() - start)
    return best


def layer_and_codes(
    batch: int = BATCH, lower: tuple[int, int] = LOWER, upper: tuple[int, int] = UPPER
) -> tuple[CapsuleLayer, torch.Tensor]:
    layer = CapsuleLayer(lower, upper, ITERATIONS)
    x = torch.rand(batch, *lower, generator=torch.Generator().manual_seed(0))
    layer.start_from(x.mean(0))
    return layer, x


def by(backend: kernels.Backend, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad(), kernels.use(backend):
            return function(*arguments)

    return call


_MEMORY = """
import resource, sys
from pathlib import Path
from capspoe import bench

def peak():
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

backend, batch, I, J = sys.argv[1], *map(int, sys.argv[2:])
bench.by(backend, *bench.layer_and_codes(2, (16, 8), (2, 16)))()  # libraries loaded, kernels compiled
layer, x = bench.layer_and_codes(batch, (I, 8), (J, 16))
if Path("/proc/self/clear_refs").exists():
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before = peak()
bench.by(backend, layer, x)()
print(peak() - before)
"""


def peak_memory(backend: str, batch: int = BATCH, I: int = LOWER[0], J: int = UPPER[0]) -> float:
    """Bytes by which one routing raises the peak memory of a fresh process, its results included."""
    command = [sys.executable, "-c", _MEMORY, backend, str(batch), str(I), str(J)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent p of y ~ x^p, by least squares."""
    a, b = [math.log(v) for v in x], [math.log(v) for v in y]
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    return sum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True)) / sum((p - ma) ** 2 for p in a)
