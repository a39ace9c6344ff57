"""Every line of the table."""

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch

from capspoe import contrastive
from capspoe.bench.results import Row
from capspoe.bench.timing import (
    BATCH,
    ITERATIONS,
    LOWER,
    UPPER,
    by,
    interleaved,
    layer_and_codes,
    peak_memory,
    slope,
)
from capspoe.capsules import CapsuleLayer
from capspoe.noise import Noise

CODES = 60_000
SIZES = {"B": (32, 64, 128, 256, 512, 1024), "I": (144, 288, 576, 1152), "J": (5, 10, 20, 40)}
Tell = Callable[[str], None]


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


def scaling(rounds: int, tell: Tell, memory: bool) -> tuple[list[Row], dict[str, list[dict[str, float]]]]:
    """Time for one image, and extra memory, against B, I and J."""
    curves: dict[str, list[dict[str, float]]] = {}
    for axis, values in SIZES.items():
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
        exponent = slope(SIZES[axis], [point["microseconds"] for point in curves[axis]])
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
