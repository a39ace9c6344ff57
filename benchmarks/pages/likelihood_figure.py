"""Draw docs/figures/likelihood.svg from the record of benchmarks/quality/likelihood.py.

    python -m benchmarks.pages.likelihood_figure

The log-likelihood of test images against the number of capsules, on training images in paler colour; horizontal lines
are the other models of the record.
"""

import argparse
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.pages.results import likelihood_name

FIGURE = records.ROOT / "docs" / "figures" / "likelihood.svg"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
SPLITS = {"test": 1.0, "train": 0.35}  # and how opaque the line is
Row = dict[str, Any]


class Curve(NamedTuple):
    """Rows of capsules with the same number of neurons, by their number of capsules; with or without chains."""

    neurons: int
    chains: bool
    rows: dict[int, list[Row]]

    def values(self, split: str) -> list[float]:
        """The mean over the seeds of the middle of both estimates."""
        return [float(np.mean([row[split] for row in rows])) for rows in self.rows.values()]


def curves(rows: list[Row]) -> list[Curve]:
    by_kind: dict[tuple[int, bool], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if match := re.fullmatch(r"([0-9]+)x([0-9]+)(-chains)?", row["model"]):
            by_kind[int(match[2]), match[3] is not None][int(match[1])].append(row)
    return [Curve(*kind, dict(sorted(by_kind[kind].items()))) for kind in sorted(by_kind)]


def draw(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axis = figure.subplots()
    capsules: set[int] = set()
    neurons: list[int] = []
    for curve in curves(rows):
        if curve.neurons not in neurons:
            neurons.append(curve.neurons)
        capsules.update(curve.rows)
        for split, opacity in SPLITS.items():
            images = "test" if split == "test" else "training"
            axis.plot(
                list(curve.rows),
                curve.values(split),
                "o-" if curve.chains else "s--",
                color=COLOURS[(len(neurons) - 1) % len(COLOURS)],
                alpha=opacity,
                markersize=5,
                label=f"{curve.neurons} neurons, {'chains' if curve.chains else 'start'}, {images} images",
            )
    others = defaultdict(list)
    for row in rows:
        # Factor analysers are more than 100 nats below everything else: the table has them.
        if "x" not in row["model"] and row["model"] != "factor-analysers":
            others[row["model"]].append(row)
    for number, (model, own) in enumerate(others.items()):
        value = float(np.mean([row["test"] for row in own]))
        axis.axhline(value, color="#777777", linewidth=0.8, linestyle=":")
        # Neighbours may be close: one label on the right, the next on the left.
        x, side = ((max(capsules), "right"), (min(capsules), "left"))[number % 2]
        axis.text(x, value, likelihood_name(model), fontsize=7, ha=side, va="bottom")
    axis.set_xscale("log")
    axis.set_xticks(sorted(capsules), [str(count) for count in sorted(capsules)])
    axis.minorticks_off()
    axis.set_xlabel("capsules")
    axis.set_ylabel("log P of an image, nats")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    draw(records.read("likelihood")).savefig(FIGURE)
    print(FIGURE.relative_to(records.ROOT))


if __name__ == "__main__":
    main()
