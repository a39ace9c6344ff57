"""What the CPU kernels gain: every pair measured in turn, in one run, best of several.

Times vary from machine to machine and from minute to minute; ratios of two things that ran side by side vary
much less. `capspoe bench` prints `table(measure())` and writes the same as JSON.
"""

import json
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from capspoe import contrastive, kernels
from capspoe.capsules import CapsuleLayer
from capspoe.noise import Noise

BATCH, LOWER, UPPER, ITERATIONS = 128, (576, 8), (20, 16), 3  # the paper's layer
CODES = 60_000
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One line of the table: `value` should be at least `target`, or if `at_most`, from `least` to `target`."""

    what: str
    against: str
    value: float
    target: float
    unit: str = "x"
    at_most: bool = False
    least: float = 0.0
    detail: str = ""

    @property
    def reached(self) -> bool:
        return self.least <= self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def wanted(self) -> str:
        bound = f"{self.least:g} to" if self.least else "≤" if self.at_most else "≥"
        return f"{bound} {self.target:.3g}"


@dataclass
class Results:
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    scaling: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        data = asdict(self)
        for row, entry in zip(self.rows, data["rows"], strict=True):
            entry["reached"] = row.reached
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1) + "\n")


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


def routing_rows(rounds: int, tell: Tell) -> list[Row]:
    """Forward routing against the reference, eager and compiled, and against the machine's own limit."""
    layer, x = layer_and_codes()
    tell("routing: kernels, reference, torch.compile")
    square = torch.rand(1024, 1024)
    compiled = torch.compile(layer.forward)
    sides = {
        "kernel": by("kernel", layer, x),
        "reference": by("reference", layer, x),
        "compiled": by("reference", compiled, x),
        "matmul": lambda: square @ square,
    }
    why = ""
    try:
        sides["compiled"]()
    except Exception as error:  # no C++ compiler, for one
        why = f"torch.compile failed: {type(error).__name__}"
        del sides["compiled"]
    best = interleaved(sides, rounds)
    (I, M), (J, N) = LOWER, UPPER
    # predictions, their squares, and in each iteration a sum and (but for the last) an agreement
    operations = 2 * BATCH * I * J * N * (M + 1 + ITERATIONS + ITERATIONS - 1)
    rate, limit = operations / best["kernel"], 2 * 1024**3 / best["matmul"]
    each = {name: f"{1e6 * seconds / BATCH:.0f}" for name, seconds in best.items()}
    return [
        Row(
            "routing forward",
            "einsum reference, eager",
            best["reference"] / best["kernel"],
            30,
            detail=f"{each['kernel']} against {each['reference']} µs per image",
        ),
        Row(
            "routing forward",
            "the same under torch.compile",
            best.get("compiled", math.nan) / best["kernel"],
            18,
            detail=why or f"{each['kernel']} against {each['compiled']} µs per image",
        ),
        Row(
            "arithmetic rate of routing",
            "float32 matrix multiply",
            rate / limit,
            1 / 3,
            detail=f"{rate / 1e9:.0f} of {limit / 1e9:.0f} GFlop/s",
        ),
    ]


def sgd(layer: CapsuleLayer, gradients: contrastive.Gradients, momentum: list[torch.Tensor]) -> None:
    """What a training loop does with the gradients."""
    for parameter, gradient, speed in zip(
        (layer.w_JNMI, layer.a, layer.b), gradients, momentum, strict=False
    ):
        speed.mul_(0.9).add_(gradient)
        parameter.data.add_(speed, alpha=1e-6)


def step_rows(rounds: int, tell: Tell) -> list[Row]:
    """A training step against the reference, and an epoch of them against scikit-learn's RBM."""
    from sklearn.neural_network import BernoulliRBM

    layer, x = layer_and_codes()
    noise = Noise.for_batch(BATCH)
    tell("training step: kernels, reference")
    best = interleaved(
        {name: by(name, contrastive.step, layer, x, noise) for name in ("kernel", "reference")},
        max(2, rounds // 2),
    )
    rows = [
        Row(
            "capsule training step, gate=winner",
            "the reference step",
            best["reference"] / best["kernel"],
            20,
            detail=f"{1e3 * best['kernel']:.1f} against {1e3 * best['reference']:.0f} ms",
        )
    ]
    tell("epoch: capsules, scikit-learn's RBM")
    rbm = BernoulliRBM(UPPER[0] * UPPER[1], learning_rate=1e-3, batch_size=BATCH, random_state=0)
    flat = x.reshape(BATCH, -1).numpy()
    momentum = [torch.zeros_like(p) for p in (layer.w_JNMI, layer.a, layer.b)]

    def capsules() -> None:
        sgd(layer, contrastive.step(layer, x, noise)[0], momentum)

    best = interleaved({"capsules": by("kernel", capsules), "rbm": lambda: rbm.partial_fit(flat)}, 2 * rounds)
    epoch = {name: seconds * CODES / BATCH for name, seconds in best.items()}
    rows.append(
        Row(
            f"capsule epoch, {CODES:,} codes",
            "BernoulliRBM, 4608 -> 320",
            epoch["capsules"] / epoch["rbm"],
            1,
            at_most=True,
            detail=f"{epoch['capsules']:.1f} against {epoch['rbm']:.1f} s, from single batches",
        )
    )
    return rows


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


def memory_row(tell: Tell) -> Row:
    tell("memory")
    ours, theirs = peak_memory("kernel"), peak_memory("reference")
    return Row(
        "extra memory of routing",
        "reference",
        ours / theirs,
        1 / 10,
        at_most=True,
        detail=f"{ours / 2**20:.0f} against {theirs / 2**20:.0f} MB",
    )


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent p of y ~ x^p, by least squares."""
    a, b = [math.log(v) for v in x], [math.log(v) for v in y]
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    return sum((p - ma) * (q - mb) for p, q in zip(a, b, strict=True)) / sum((p - ma) ** 2 for p in a)


def scaling(rounds: int, tell: Tell, memory: bool) -> tuple[list[Row], dict[str, list[dict[str, float]]]]:
    """Time for one image, and extra memory, against B, I and J."""
    sizes = {"B": (32, 64, 128, 256, 512, 1024), "I": (144, 288, 576, 1152), "J": (5, 10, 20, 40)}
    curves: dict[str, list[dict[str, float]]] = {}
    for axis, values in sizes.items():
        tell(f"growth in {axis}")
        sides = {}
        for value in values:
            batch = value if axis == "B" else BATCH
            I, J = value if axis == "I" else LOWER[0], value if axis == "J" else UPPER[0]
            layer, x = layer_and_codes(batch, (I, LOWER[1]), (J, UPPER[1]))
            sides[str(value)] = by("kernel", layer, x)
        best = interleaved(sides, rounds)
        curves[axis] = []
        for value in values:
            point = {axis: value, "microseconds": 1e6 * best[str(value)] / (value if axis == "B" else BATCH)}
            if memory and value <= 512:
                arguments = {"batch" if axis == "B" else axis: value}
                point["kernel_bytes"] = peak_memory("kernel", **arguments)
                point["reference_bytes"] = peak_memory("reference", **arguments)
            curves[axis].append(point)
    times = [point["microseconds"] for point in curves["B"]]
    rows = [
        Row("time for one image, B = 32 to 1024", "its least", max(times) / min(times), 1.25, at_most=True)
    ]
    for axis in ("I", "J"):
        exponent = slope(sizes[axis], [point["microseconds"] for point in curves[axis]])
        rows.append(Row(f"growth in {axis}", "exponent", exponent, 1.1, unit="", at_most=True, least=0.9))
    return rows, curves


def help_row(rounds: int, tell: Tell) -> Row:
    tell("capspoe --help")

    def run(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    start = "import sys; sys.argv = ['capspoe', '--help']; from capspoe.cli import main; main()"
    best = interleaved({"help": run(start), "torch": run("import torch")}, rounds)
    return Row(
        "capspoe --help",
        'python -c "import torch"',
        best["help"] / best["torch"],
        0.25,
        at_most=True,
        detail=f"{best['help']:.2f} against {best['torch']:.2f} s",
    )


def measure(rounds: int = 9, memory: bool = True, tell: Tell = lambda what: None) -> Results:
    """Everything, in a few minutes; fewer rounds are quicker and noisier."""
    results = Results(
        {
            "processor": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "size": {"B": BATCH, "lower": LOWER, "upper": UPPER, "iterations": ITERATIONS},
        }
    )
    results.rows += routing_rows(rounds, tell) + step_rows(rounds, tell)
    if memory:
        results.rows.append(memory_row(tell))
    rows, results.scaling = scaling(3 * rounds, tell, memory)  # each takes milliseconds
    results.rows += [*rows, help_row(max(2, rounds // 3), tell)]
    return results


def table(results: Results) -> Table:
    out = Table(title=f"{results.machine['threads']} threads, B {BATCH}, 576x8 -> 20x16, 3 iterations")
    for name in ("what", "against", "ratio", "target", "", "measured"):
        out.add_column(name, justify="right" if name in ("ratio", "target") else "left")
    for row in results.rows:
        mark = "yes" if row.reached else "no"
        out.add_row(row.what, row.against, f"{row.value:.3g}{row.unit}", row.wanted, mark, row.detail)
    return out


def command(rounds: int, out: Path | None) -> None:
    """What `capspoe bench` does: measure, print the table, write JSON if asked."""
    console = Console(width=None if Console().is_terminal else 140)
    results = measure(rounds, tell=lambda what: console.print(f"[dim]{what} ...[/dim]"))
    console.print(table(results))
    if out:
        results.write(out)
        print(out)
