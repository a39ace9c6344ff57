"""Measure the kernels against their targets and against other capsule layers (`make bench`).

    python -m benchmarks.speed.kernels [--rounds 5]

Prints both tables and writes the record. The sides of a comparison take turns in one run, twice in each turn, and the
best time of each counts: times vary with the machine and the minute, ratios much less. The targets that need a whole
training are measured by other scripts.
"""

import argparse
import functools
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from examples.supervised_capsules import CapsuleNetwork, train_step
from rich.console import Console
from rich.table import Table
from sklearn.neural_network import BernoulliRBM
from torch import Tensor
from torch.utils.benchmark import Timer

from benchmarks import records
from benchmarks.speed.peers import ITERATIONS, PEERS, plain_routing
from capspoe import CapsuleLayer, kernels, route, squash
from capspoe.model.noise import Noise
from capspoe.model.routing import reference
from capspoe.training.cd import ContrastiveDivergence

RECORD = "kernels"
DEPENDS = ("kernels", "model", "training")
MODULE = "benchmarks.speed.kernels"
PAPER = (128, 576, 8, 20, 16)  # B, I, M, J, N
SABOUR = (64, 1152, 8, 10, 16)
TINY = (5, 48, 8, 3, 16)
CODES = 60_000
WIDTH = 150  # of the tables in a file or a pipe
COMPILED = ", torch.compile"  # end of the name of a compiled layer
Layer = Callable[[Tensor, Tensor], Tensor]


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
        if self.at_most:
            return self.value <= self.target
        return self.value >= self.target

    @property
    def wanted(self) -> str:
        sign = "≤" if self.at_most else "≥"
        return f"{sign} {self.target:g}"


def speedup(what: str, against: str, seconds: tuple[float, float], target: float, unit: str) -> Row:
    """A row for our time and theirs, both in the given unit."""
    ours, theirs = seconds
    return Row(what, against, theirs / ours, target, detail=f"{ours:.3g} / {theirs:.3g} {unit}")


def interleaved(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Best time of each side in seconds, NaN for a side that fails, such as torch.compile without a compiler."""
    threads = torch.get_num_threads()
    best = dict.fromkeys(sides, math.inf)
    for _ in range(rounds):
        for name, side in sides.items():
            if math.isnan(best[name]):
                continue
            try:
                # Before each timing, the timer runs the side without counting.
                seconds = Timer("side()", globals={"side": side}, num_threads=threads).timeit(1).mean
            except Exception as error:
                print(f"{name}: {type(error).__name__}", file=sys.stderr)
                best[name] = math.nan
            else:
                best[name] = min(best[name], seconds)
    return best


def inputs(shape: tuple[int, ...], requires_grad: bool = False) -> tuple[Tensor, Tensor]:
    """x and W of a shape (B, I, M, J, N)."""
    B, I, M, J, N = shape
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(B, I, M, generator=rng)
    W = 0.1 * torch.randn(J, I, N, M, generator=rng)
    return x.requires_grad_(requires_grad), W.requires_grad_(requires_grad)


def our_layer(x: Tensor, W: Tensor, detach: bool = False) -> Tensor:
    return squash(route(x, W, ITERATIONS, normalize="upper", agreement="dot", detach_routing=detach).z)


OURS: dict[str, Layer] = {
    "capspoe.route": our_layer,
    "capspoe.route, detach_routing": functools.partial(our_layer, detach=True),
}


def forward(layer: Callable[..., Any], shape: tuple[int, ...]) -> Callable[[], Any]:
    x, W = inputs(shape)

    @torch.no_grad()
    def side() -> Any:
        return layer(x, W)

    return side


def forward_backward(layer: Layer, shape: tuple[int, ...]) -> Callable[[], Any]:
    x, W = inputs(shape, requires_grad=True)

    def side() -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(x, W).square().sum(), (x, W))

    return side


def compiled(layer: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()  # nothing of the last side counts as a recompilation
    return torch.compile(layer, dynamic=False)


def forward_rows(rounds: int) -> list[Row]:
    """`capspoe.route` without gradients, against a plain einsum, our own reference and the machine's own limit."""
    square = torch.rand(1024, 1024)
    sides = {
        "kernel": forward(route, PAPER),
        "eager": forward(reference, PAPER),
        "compiled": forward(compiled(reference), PAPER),
        "plain": forward(plain_routing, PAPER),
        "plain compiled": forward(compiled(plain_routing), PAPER),
        "matmul": lambda: square @ square,
    }
    best = interleaved(sides, rounds)
    B, I, M, J, N = PAPER
    # Predictions, their squares, and in each iteration a sum and (but for the last) an agreement.
    operations = 2 * B * I * J * N * (M + 1 + ITERATIONS + ITERATIONS - 1)
    rate = operations / best["kernel"] / 1e9
    limit = 2 * 1024**3 / best["matmul"] / 1e9
    kernel = 1e6 * best["kernel"] / B
    eager = 1e6 * best["eager"] / B
    by_compiler = 1e6 * best["compiled"] / B
    plain = 1e6 * best["plain"] / B
    plain_by_compiler = 1e6 * best["plain compiled"] / B
    what = "capspoe.route, paper size, no gradients"
    return [
        speedup(what, "einsum and F.normalize, eager", (kernel, plain), 20, "µs an image"),
        speedup(what, "einsum and F.normalize, torch.compile", (kernel, plain_by_compiler), 10, "µs an image"),
        speedup(what, "our reference with safe lengths, eager", (kernel, eager), 40, "µs an image"),
        speedup(what, "our reference with safe lengths, torch.compile", (kernel, by_compiler), 14, "µs an image"),
        Row(
            "its rate",
            "float32 matrix multiply",
            rate / limit,
            0.4,
            detail=f"{rate:.0f} / {limit:.0f} GFlop/s",
        ),
    ]


def peer_table(rounds: int) -> list[dict[str, Any]]:
    """Time of each layer, forward and with its gradients, and the memory of both, at Sabour's size."""
    layers: dict[str, Layer] = OURS | PEERS
    for name, peer in PEERS.items():
        layers[name + COMPILED] = compiled(peer)
    forward_times = interleaved({name: forward(layer, SABOUR) for name, layer in layers.items()}, rounds)
    both_times = interleaved({name: forward_backward(layer, SABOUR) for name, layer in layers.items()}, rounds)
    rows = []
    for name in layers:
        row = {
            "layer": name,
            "forward_ms": 1e3 * forward_times[name],
            "both_ms": 1e3 * both_times[name],
            "both_mb": peak_memory(name),
        }
        rows.append(row)
    return rows


def backward_rows(peers: list[dict[str, Any]]) -> list[Row]:
    """Targets with gradients, from the table of layers."""
    by_name = {peer["layer"]: peer for peer in peers}
    ours = by_name["capspoe.route"]
    eager = by_name["einsum layer"]
    by_compiler = by_name["einsum layer" + COMPILED]
    what = "forward + backward, Sabour's size"
    megabytes = f"{ours['both_mb']:.0f} / {eager['both_mb']:.0f} MB"
    return [
        speedup(what, "einsum, autograd", (ours["both_ms"], eager["both_ms"]), 10, "ms"),
        speedup(what, "einsum, torch.compile", (ours["both_ms"], by_compiler["both_ms"]), 4, "ms"),
        Row("its peak memory", "einsum, autograd", ours["both_mb"] / eager["both_mb"], 0.1, True, megabytes),
    ]


def paper_backward_rows(rounds: int) -> list[Row]:
    """With gradients at the paper's size, against a plain einsum."""
    sides = {
        "kernel": forward_backward(lambda x, W: route(x, W).z, PAPER),
        "plain": forward_backward(plain_routing, PAPER),
        "plain compiled": forward_backward(compiled(plain_routing), PAPER),
    }
    best = interleaved(sides, rounds)
    kernel, plain, by_compiler = (1e3 * seconds for seconds in best.values())
    what = "forward + backward, paper size"
    return [
        speedup(what, "einsum and F.normalize, autograd", (kernel, plain), 10, "ms"),
        speedup(what, "einsum and F.normalize, torch.compile", (kernel, by_compiler), 4, "ms"),
    ]


def with_backend(backend: kernels.Backend, function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    def side() -> Any:
        with kernels.use(backend):
            return function(*arguments)

    return side


def supervised_row(rounds: int) -> Row:
    """A training step of the example; an epoch is many of them."""
    network = CapsuleNetwork()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    images = torch.rand(64, 1, 28, 28)
    labels = torch.arange(64) % 10
    sides = {
        "kernels": with_backend("auto", train_step, network, optimizer, images, labels),
        "plain": with_backend("reference", train_step, network, optimizer, images, labels),
    }
    best = interleaved(sides, rounds)
    steps = CODES / len(images)
    epochs = (best["kernels"] * steps, best["plain"] * steps)
    what = "epoch of examples/supervised_capsules.py"
    return speedup(what, "the same, plain PyTorch", epochs, 5, "s, from single steps")


def capsule_epoch_row(rounds: int) -> Row:
    """Contrastive divergence of a layer of the paper's size, against scikit-learn's RBM of the same size."""
    B, I, M, J, N = PAPER
    layer = CapsuleLayer((I, M), (J, N))
    noise = Noise.for_batch(B)
    x, _ = inputs(PAPER)
    layer.start_from(x.mean(0))
    parameters = (layer.w_JNMI, layer.a, layer.b)
    divergence = ContrastiveDivergence()
    velocities = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def capsule_step() -> None:
        gradients, _ = divergence.step(layer, x, noise)
        for parameter, gradient, velocity in zip(parameters, gradients, velocities, strict=True):
            velocity.mul_(0.9).add_(gradient)
            parameter.add_(velocity, alpha=1e-6)

    rbm = BernoulliRBM(J * N, learning_rate=1e-3, batch_size=B, random_state=0)
    flat = x.reshape(B, -1).numpy()
    best = interleaved({"capsules": capsule_step, "rbm": lambda: rbm.partial_fit(flat)}, 3 * rounds)
    ours = best["capsules"] * CODES / B
    theirs = best["rbm"] * CODES / B
    detail = f"{ours:.1f} / {theirs:.1f} s, from single batches"
    return Row(f"capsule epoch, {CODES:,} codes", "BernoulliRBM, same size", ours / theirs, 0.5, True, detail)


def peak_memory(name: str) -> float:
    """MB by which the peak memory of a fresh process rises in a forward and backward pass at Sabour's size."""
    command = [sys.executable, "-m", MODULE, "--memory", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=records.ROOT)
    if done.returncode != 0:
        return math.nan
    return float(done.stdout.split()[-1])


def print_memory(name: str) -> None:
    """What `peak_memory` runs in a process of its own."""

    def peak() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmHWM:")[1].split()[0])

    layers = OURS | PEERS
    layer = layers[name.removesuffix(COMPILED)]
    if name.endswith(COMPILED):
        layer = torch.compile(layer, dynamic=True)
    forward_backward(layer, TINY)()  # libraries loaded, kernels compiled
    side = forward_backward(layer, SABOUR)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = peak()
    side()
    print((peak() - before) / 2**20)


def targets_table(rows: list[Row]) -> Table:
    table = Table("what", "against", "ratio", "target", "reached", "measured", title="Targets")
    for row in rows:
        reached = "yes" if row.reached else "no"
        table.add_row(row.what, row.against, f"{row.value:.3g}", row.wanted, reached, row.detail)
    return table


def layers_table(peers: list[dict[str, Any]]) -> Table:
    columns = ("layer, 64 x 1152x8 -> 10x16", "forward, ms", "forward + backward, ms", "its peak memory, MB")
    table = Table(*columns, title="Other layers")
    for peer in peers:
        times = (f"{peer['forward_ms']:.1f}", f"{peer['both_ms']:.1f}")
        table.add_row(peer["layer"], *times, f"{peer['both_mb']:.1f}")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often each side is timed; the best counts")
    parser.add_argument("--folder", type=Path, default=records.FOLDER, help="where the record is written")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.memory:
        print_memory(options.memory)
        return
    load_before = os.getloadavg()[0]
    rows = forward_rows(options.rounds)
    peers = peer_table(options.rounds)
    rows += backward_rows(peers)
    rows += paper_backward_rows(options.rounds)
    rows.append(supervised_row(options.rounds))
    rows.append(capsule_epoch_row(options.rounds))
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(targets_table(rows))
    console.print(layers_table(peers))
    machine = {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [load_before, os.getloadavg()[0]],
        "torch": torch.__version__,
    }
    targets = [asdict(row) | {"reached": row.reached} for row in rows]
    content = {"machine": machine, "targets": targets, "layers": peers}
    print(records.write(RECORD, content, DEPENDS, folder=options.folder))


if __name__ == "__main__":
    main()
