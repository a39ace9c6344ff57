"""What routing is worth: capsules trained with routing, without it, and with controls.

    python -m benchmarks.quality.routing [DATA ...] [--seeds N] [--trainings NAME ...] [--variants NAME ...]

Each variant trains its capsules on the same codes and gate targets (see `variants.py`): all of them as the program
does by default, some also by contrastive divergence, the paper's way. With the default's persistent chains the
weights learn with each capsule's mean routing weights; those of an image serve its gate and its poses.

In the controls the layer routes as usual, and its weights are then shuffled among the lower capsules, or replaced by
random ones with the same spread; "negated" has agreement of the wrong sign. They are trained so, not only tested so:
`capspoe audit` does that.

Seeds come one after the other, each with all variants and data sets, so an interrupted record is complete for some.

Each variant and seed adds a row to the record `routing`, and those with a row are skipped: run it again with more
seeds to add them.
"""

import argparse
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks import records
from benchmarks.quality.variants import CD, DAMAGED, Workbench, mean_and_range
from capspoe.config import Config, preset
from capspoe.infer.audit import WeightsOf, controls
from capspoe.model.build import build_layers
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import Routing

RECORD = "routing"
DEPENDS = (*records.TRAINING, "evaluate", "infer")
DATA = ("mnist", "fashion-mnist")
# Settings of each variant, and the control that replaces the weights.
VARIANTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "no routing": ({"iterations": 1}, None),
    "routing": ({}, None),
    "routing, sharpness 3": ({"sharpness": 3.0}, None),
    "negated": ({"sharpness": -1.0}, None),
    "shuffled": ({}, "shuffled"),
    "random": ({}, "random"),
    "over the upper capsules": ({"normalize": "upper"}, None),
    "over the upper capsules, sharpness 3": ({"normalize": "upper", "sharpness": 3.0}, None),
}
# The settings of each way of training, and its variants.
TRAININGS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, tuple(VARIANTS)),
    "contrastive divergence": (CD, ("no routing", "routing", "negated", "shuffled", "over the upper capsules")),
}
# Columns of the two tables of the summary: the keys of a score. The second table has means only.
Score = tuple[str, ...]
SCORES: tuple[Score, ...] = (("fid",), ("recall",), ("purity",), ("probe",))
DAMAGE: tuple[Score, ...] = (
    *(("gate", kind) for kind in ("clean", *DAMAGED, "pairs")),
    *(("damaged probe", kind) for kind in DAMAGED),
)


class ControlledLayer(CapsuleLayer):
    """A layer whose routing weights are replaced by those of a control, in training and afterwards."""

    control: WeightsOf

    def forward(self, x: Float[Tensor, "B I M"]) -> Routing:
        own = super().forward(x)
        c = self.control(x, own.c)
        return Routing(c, self.preactivation(x, c))


def controlled_layer(config: Config, lower: tuple[int, int], control: str) -> ControlledLayer:
    """The layer of these settings with a control."""
    (plain,) = build_layers(config, lower)
    layer = ControlledLayer(
        plain.lower,
        plain.upper,
        config.iterations,
        normalize=config.normalize,
        agreement=config.agreement,
        sharpness=config.sharpness,
        initial_std=config.initial_std,
        seed=config.seed,
    )
    layer.control = controls(layer, torch.Generator().manual_seed(config.seed))[control]
    return layer


def measure(bench: Workbench, config: Config, control: str | None) -> dict[str, Any]:
    """Train one variant and score it."""
    layer = None
    if control is not None:
        layer = controlled_layer(config, bench.frozen.network.codec.capsules, control)
    network = bench.train(config, layer)
    return bench.generation(network) | bench.recognition(network)


class Measurement:
    """The settings of a record, and the workbench of each data set that needs one."""

    def __init__(self, epochs: int, trainings: Sequence[str], variants: Sequence[str]) -> None:
        self.epochs = epochs
        self.trainings = trainings
        self.variants = variants
        self.benches: dict[str, Workbench] = {}

    def run(self, name: str, seed: int) -> None:
        """Add the rows of a data set and seed that are missing."""
        for training in self.trainings:
            _, variants = TRAININGS[training]
            for variant in variants:
                if variant in self.variants:
                    self.train(name, training, variant, seed)

    def train(self, name: str, training: str, variant: str, seed: int) -> None:
        key = {"data": name, "training": training, "variant": variant, "seed": seed, "epochs": self.epochs}
        settings, control = VARIANTS[variant]
        config = preset("small", name).replace(**TRAININGS[training][0], **settings)
        config = config.replace(epochs=self.epochs, min_steps=0, seed=seed)
        records.add_row(RECORD, key, lambda: measure(self.bench(name), config, control), DEPENDS)

    def bench(self, name: str) -> Workbench:
        if name not in self.benches:
            self.benches[name] = Workbench(preset("small", name))
        return self.benches[name]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """Two tables for each data set and way of training: scores with half ranges across seeds, and damage."""
    lines = []
    for name, training in itertools.product(DATA, TRAININGS):
        own = [row for row in rows if (row["data"], row["training"]) == (name, training) and "diverged" not in row]
        for scores in (SCORES, DAMAGE):
            columns = [" ".join(score) for score in scores]
            lines += ["", f"{name}, {training}", "", "| | seeds | " + " | ".join(columns) + " |"]
            lines += ["|---|---|" + "---|" * len(scores)]
            for variant in VARIANTS:
                seeds = [row for row in own if row["variant"] == variant]
                if seeds:
                    cells = [cell(seeds, score, spread=scores is SCORES) for score in scores]
                    lines.append(f"| {variant} | {len(seeds)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(rows: Sequence[dict[str, Any]], score: Score, spread: bool) -> str:
    values = mean_and_range([value_of(row, score) for row in rows])
    digits = 1 if score == ("fid",) else 3
    text = f"{values['mean']:.{digits}f}"
    return f"{text} ± {values['half_range']:.{digits}f}" if spread else text


def value_of(row: dict[str, Any], score: Score) -> float:
    value: Any = row
    for key in score:
        value = value[key]
    return float(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="DATA", default=DATA, help=f"default: {' '.join(DATA)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="of stage 2")
    parser.add_argument("--trainings", nargs="+", default=list(TRAININGS), choices=list(TRAININGS), metavar="NAME")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    options = parser.parse_args(arguments)
    measurement = Measurement(options.epochs, options.trainings, options.variants)
    for seed in range(options.seeds):
        for name in options.data:
            measurement.run(name, seed)
    print(summary(records.read(RECORD, default=[])))


if __name__ == "__main__":
    main()
