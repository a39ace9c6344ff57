"""Measure the kernels against their targets and against other capsule layers; print both tables and write JSON.

    python benchmarks/run.py [--rounds 5] [--out benchmarks/results.json]

The sides of a comparison take turns in one run, twice in each turn, and the best time of each counts: times vary with
the machine and the minute, ratios much less. The targets that need a whole training are measured by other files here.
"""

import argparse
import functools
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peers import ITERATIONS, PEERS
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.benchmark import Timer

from capspoe import CapsuleLayer, kernels, route, squash
from capspoe.model.noise import Noise
from capspoe.model.routing import reference
from capspoe.train import cd as contrastive

HERE = Path(__file__).resolve().parent
PAPER = (128, 576, 8, 20, 16)  # B, I, M, J, N
SABOUR = (64, 1152, 8, 10, 16)
CODES = 60_000


@dataclass(frozen=True)
class Row:
    """One target: `value` should be at least `target`, or at most."""

    what: str
    against: str
    value: float
    target: float
    at_most: bool = False
    detail: str = ""

    @property
    def reached(self) -> bool:
        return self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def wanted(self) -> str:
        return f"{'≤' if self.at_most else '≥'} {self.target:g}"


def interleaved(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best time of each side in seconds, NaN for a side that fails, such as torch.compile without a compiler."""
    threads, best = torch.get_num_threads(), dict.fromkeys(sides, math.inf)
    for _ in range(rounds):
        for name, side in sides.items():
            if not math.isnan(best[name]):
                try:  # each timing is preceded by runs that do not count
                    seconds = Timer("side()", globals={"side": side}, num_threads=threads).timeit(1).mean
                    best[name] = min(best[name], seconds)
                except Exception as error:
                    print(f"{name}: {type(error).__name__}", file=sys.stderr)
                    best[name] = math.nan
    return best


def inputs(shape: tuple[int, ...], requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    B, I, M, J, N = shape
    rng = torch.Generator().manual_seed(0)
    x, W = torch.rand(B, I, M, generator=rng), 0.1 * torch.randn(J, I, N, M, generator=rng)
    return x.requires_grad_(requires_grad), W.requires_grad_(requires_grad)


def our_layer(x: Tensor, W: Tensor, detach: bool = False) -> Tensor:
    return squash(route(x, W, ITERATIONS, normalize="upper", agreement="dot", detach_routing=detach).z)


OURS = {
    "capspoe.route": our_layer,
    "capspoe.route, detach_routing": functools.partial(our_layer, detach=True),
}


def forward(function: Callable[..., Tensor], shape: tuple[int, ...]) -> Callable[[], Any]:
    x, W = inputs(shape)
    return torch.no_grad()(lambda: function(x, W))


def forward_backward(function: Callable[..., Tensor], shape: tuple[int, ...]) -> Callable[[], Any]:
    x, W = inputs(shape, requires_grad=True)
    return lambda: torch.autograd.grad(function(x, W).square().sum(), (x, W))


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()  # nothing of the last side counts as a recompilation
    return torch.compile(function, dynamic=False)


def forward_rows(rounds: int) -> list[Row]:
    """`capspoe.route` without gradients, against the einsum reference and the machine's own limit."""
    square = torch.rand(1024, 1024)
    sides = {
        "kernel": forward(route, PAPER),
        "eager": forward(reference, PAPER),
        "compiled": forward(compiled(reference), PAPER),
        "matmul": lambda: square @ square,
    }
    best = interleaved(sides, rounds)
    B, I, M, J, N = PAPER
    # predictions, their squares, and in each iteration a sum and (but for the last) an agreement
    rate = 2 * B * I * J * N * (M + 1 + ITERATIONS + ITERATIONS - 1) / best["kernel"] / 1e9
    limit = 2 * 1024**3 / best["matmul"] / 1e9
    what, each = (
        "capspoe.route, paper size, no gradients",
        {k: 1e6 * seconds / B for k, seconds in best.items()},
    )
    return [
        faster(what, "einsum, eager", each["kernel"], each["eager"], 40, "µs an image"),
        faster(what, "einsum, torch.compile", each["kernel"], each["compiled"], 14, "µs an image"),
        Row(
            "its rate",
            "float32 matrix multiply",
            rate / limit,
            0.4,
            False,
            f"{rate:.0f} / {limit:.0f} GFlop/s",
        ),
    ]


def faster(what: str, against: str, ours: float, theirs: float, target: float, unit: str) -> Row:
    return Row(what, against, theirs / ours, target, False, f"{ours:.3g} / {theirs:.3g} {unit}")


def peer_table(rounds: int) -> list[dict[str, Any]]:
    """Time of each layer, forward and with its gradients, and the memory of both, at Sabour's size."""
    functions = OURS | PEERS | {f"{name}, torch.compile": compiled(peer) for name, peer in PEERS.items()}
    times = [
        interleaved({name: way(function, SABOUR) for name, function in functions.items()}, rounds)
        for way in (forward, forward_backward)
    ]
    return [
        {
            "layer": name,
            "forward_ms": 1e3 * times[0][name],
            "both_ms": 1e3 * times[1][name],
            "both_mb": peak_memory(name),
        }
        for name in functions
    ]


def backward_rows(peers: list[dict[str, Any]]) -> list[Row]:
    of = {peer["layer"]: peer for peer in peers}
    ours, eager, fast = of["capspoe.route"], of["einsum layer"], of["einsum layer, torch.compile"]
    what, memory, most = "forward + backward, Sabour's size", ours["both_mb"], eager["both_mb"]
    return [
        faster(what, "einsum, autograd", ours["both_ms"], eager["both_ms"], 10, "ms"),
        faster(what, "einsum, torch.compile", ours["both_ms"], fast["both_ms"], 4, "ms"),
        Row("its peak memory", "einsum, autograd", memory / most, 0.1, True, f"{memory:.0f} / {most:.0f} MB"),
    ]


def by(backend: kernels.Backend, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    def call() -> Any:
        with kernels.use(backend):
            return function(*arguments)

    return call


def supervised_row(rounds: int) -> Row:
    """A training step of the example; an epoch is many of them."""
    sys.path.append(str(HERE.parent / "examples"))
    from supervised_capsules import CapsuleNetwork, train_step

    network = CapsuleNetwork()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    images, labels = torch.rand(64, 1, 28, 28), torch.arange(64) % 10
    sides = {name: by(name, train_step, network, optimizer, images, labels) for name in ("auto", "reference")}
    best = interleaved(sides, rounds)
    ours, theirs = (best[name] * CODES / 64 for name in sides)
    what = "epoch of examples/supervised_capsules.py"
    return faster(what, "the same, plain PyTorch", ours, theirs, 5, "s, from single steps")


def capsule_epoch_row(rounds: int) -> Row:
    """Contrastive divergence of a layer of the paper's size, against scikit-learn's RBM of the same size."""
    from sklearn.neural_network import BernoulliRBM

    B, I, M, J, N = PAPER
    layer, noise = CapsuleLayer((I, M), (J, N)), Noise.for_batch(B)
    x = inputs(PAPER)[0]
    layer.start_from(x.mean(0))
    speed = [torch.zeros_like(p) for p in (layer.w_JNMI, layer.a, layer.b)]

    @torch.no_grad()
    def capsules() -> None:
        gradients, _ = contrastive.step(layer, x, noise)
        for parameter, gradient, velocity in zip((layer.w_JNMI, layer.a, layer.b), gradients, speed, strict=False):
            parameter.add_(velocity.mul_(0.9).add_(gradient), alpha=1e-6)

    rbm = BernoulliRBM(J * N, learning_rate=1e-3, batch_size=B, random_state=0)
    flat = x.reshape(B, -1).numpy()
    best = interleaved({"capsules": capsules, "rbm": lambda: rbm.partial_fit(flat)}, 3 * rounds)
    ours, theirs = (best[name] * CODES / B for name in ("capsules", "rbm"))
    detail = f"{ours:.1f} / {theirs:.1f} s, from single batches"
    return Row(f"capsule epoch, {CODES:,} codes", "BernoulliRBM, same size", ours / theirs, 0.5, True, detail)


def peak_memory(name: str) -> float:
    """MB by which the peak memory of a fresh process rises in a forward and backward pass at Sabour's size."""
    done = subprocess.run([sys.executable, __file__, "--memory", name], capture_output=True, text=True, check=False)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else math.nan


def measure_memory(name: str) -> None:
    status = Path("/proc/self/status")

    def peak() -> int:
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])

    plain = name.removesuffix(", torch.compile")
    function = (OURS | PEERS)[plain]
    if plain != name:
        function = torch.compile(function, dynamic=True)
    forward_backward(function, (5, 48, 8, 3, 16))()  # libraries loaded, kernels compiled
    run = forward_backward(function, SABOUR)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak()
    run()
    print((peak() - before) / 2**20)


def table(title: str, columns: list[str], lines: list[list[str]]) -> Table:
    out = Table(title=title)
    for column in columns:
        out.add_column(column)
    for line in lines:
        out.add_row(*line)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is timed; the best counts")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        measure_memory(options.memory)
        return
    began = os.getloadavg()[0]
    rows = forward_rows(options.rounds)
    peers = peer_table(options.rounds)
    rows += [*backward_rows(peers), supervised_row(options.rounds), capsule_epoch_row(options.rounds)]
    console = Console(width=None if Console().is_terminal else 150)
    lines = [[r.what, r.against, f"{r.value:.3g}", r.wanted, "yes" if r.reached else "no", r.detail] for r in rows]
    console.print(table("Targets", ["what", "against", "ratio", "target", "reached", "measured"], lines))
    numbers = [[p["layer"], *(f"{p[key]:.1f}" for key in ("forward_ms", "both_ms", "both_mb"))] for p in peers]
    columns = ["layer, 64 x 1152x8 -> 10x16", "forward, ms", "forward + backward, ms", "its peak memory, MB"]
    console.print(table("Other layers", columns, numbers))
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [began, os.getloadavg()[0]],
        "torch": torch.__version__,
    }
    found = {
        "machine": machine,
        "targets": [asdict(r) | {"reached": r.reached} for r in rows],
        "layers": peers,
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(options.out)


if __name__ == "__main__":
    main()
