"""Measure how quality depends on the epochs of the autoencoder.

    python -m benchmarks.quality.autoencoder_epochs RUN [--folder FOLDER] [--epochs 1 2 3 5]

Whole runs with the settings of RUN and other numbers of epochs are trained into FOLDER, or resumed there. Also draws
docs/figures/epochs.svg.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.quality.code_precision import scores_of
from capspoe.run.model import CapsulePoE
from capspoe.run.train import train

RECORD = "autoencoder_epochs"
DEPENDS = (*records.TRAINING, "evaluate", "infer")
FIGURE = records.ROOT / "docs" / "figures" / "epochs.svg"
PANELS = {"loss": "loss", "fid": "FID", "recall": "recall", "purity": "purity"}
LAST_LINES = 3  # of metrics.jsonl that the loss is averaged over, 50 steps each


def last_loss(run: Path) -> float:
    """The autoencoder's loss at the end of its training."""
    losses = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)
        if metrics.get("stage") == "autoencoder":
            losses.append(metrics["loss"])
    return float(np.mean(losses[-LAST_LINES:]))


def measure(run: Path, folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    config = CapsulePoE.load(run).config
    rows = []
    for count in counts:
        if count == config.autoencoder_epochs:
            trained = run
            model = CapsulePoE.load(run)
        else:
            trained = folder / f"epochs-{count}"
            changed = config.replace(autoencoder_epochs=count, min_steps=0)
            model = train(out=trained, config=changed, quiet=True)
        row = {"epochs": count, "loss": last_loss(trained), **scores_of(model)}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def draw(rows: list[dict[str, Any]]) -> Figure:
    figure = Figure(figsize=(9, 2.4), layout="constrained")
    epochs = [row["epochs"] for row in rows]
    for axis, (score, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        axis.plot(epochs, [row[score] for row in rows], "o-", color="#0072b2")
        axis.set_title(title, fontsize=10)
        axis.set_xticks(epochs)
        axis.set_xlabel("epochs of the autoencoder", fontsize=9)
        axis.grid(alpha=0.3)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/autoencoder-epochs"))
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 2, 3, 5])
    options = parser.parse_args(arguments)
    rows = measure(options.run, options.folder, options.epochs)
    draw(rows).savefig(FIGURE)
    print(records.write(RECORD, rows, DEPENDS))


if __name__ == "__main__":
    main()
