"""What routing is worth: capsules trained with routing, without it, and with controls.

    python -m benchmarks.quality.routing [DATA ...] [--seeds N] [--epochs N]

Each variant trains its capsules on the same codes and gate targets (see `variants.py`). In the controls the layer
routes as usual, and its weights are then shuffled among the lower capsules, or replaced by random ones with the same
spread; "negated" has agreement of the wrong sign. They are trained so, not only tested so: `capspoe audit` does that.
Seeds come one after the other, each with all variants and data sets, so an interrupted record is complete for some.

Each variant and seed adds a row to the record `routing`, and those with a row are skipped: run it again with more
seeds to add them.
"""

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks import records
from benchmarks.quality.variants import DAMAGED, Workbench, mean_and_range
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
# Columns of the summary: the key of a score, or the keys of a nested one.
SCORES: tuple[tuple[str, ...], ...] = (
    ("fid",),
    ("recall",),
    ("purity",),
    ("probe",),
    *(("gate", kind) for kind in (*DAMAGED, "pairs")),
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
    """The rows of the record, and the workbench of each data set that needs one."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.rows: list[dict[str, Any]] = records.read(RECORD, default=[])
        self.benches: dict[str, Workbench] = {}

    def run(self, name: str, seed: int) -> None:
        """Add the rows of a data set and seed that are missing."""
        for variant, (settings, control) in VARIANTS.items():
            key = {"data": name, "variant": variant, "seed": seed, "epochs": self.epochs}
            if any(key.items() <= row.items() for row in self.rows):
                continue
            if name not in self.benches:
                self.benches[name] = Workbench(preset("small", name))
            began = time.monotonic()
            config = preset("small", name).replace(epochs=self.epochs, min_steps=0, seed=seed, **settings)
            row = key | measure(self.benches[name], config, control)
            row["seconds"] = round(time.monotonic() - began, 1)
            self.rows.append(row)
            records.write(RECORD, self.rows, DEPENDS, extends=True)
            print(json.dumps(row), flush=True)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """A table of means and half ranges across seeds, for each data set."""
    columns = [" ".join(score) for score in SCORES]
    lines = ["| data | variant | seeds | " + " | ".join(columns) + " |", "|---|---|---|" + "---|" * len(SCORES)]
    for name in DATA:
        for variant in VARIANTS:
            own = [row for row in rows if row["data"] == name and row["variant"] == variant]
            if not own:
                continue
            cells = []
            for score in SCORES:
                values = mean_and_range([value_of(row, score) for row in own])
                digits = 1 if score == ("fid",) else 3
                cells.append(f"{values['mean']:.{digits}f} ± {values['half_range']:.{digits}f}")
            lines.append(f"| {name} | {variant} | {len(own)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def value_of(row: dict[str, Any], score: tuple[str, ...]) -> float:
    value: Any = row
    for key in score:
        value = value[key]
    return float(value)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="DATA", default=DATA, help=f"default: {' '.join(DATA)}")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3, help="of stage 2 (the preset has 10)")
    options = parser.parse_args(arguments)
    measurement = Measurement(options.epochs)
    for seed in range(options.seeds):
        for name in options.data:
            measurement.run(name, seed)
    print(summary(records.read(RECORD, default=[])))


if __name__ == "__main__":
    main()
