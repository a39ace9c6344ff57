"""Draw docs/figures/likelihood.svg from the record of benchmarks/quality/likelihood.py.

    python -m benchmarks.pages.likelihood_figure

The log-likelihood of test images against the number of capsules, on training images in paler colour; horizontal lines
are the other models of the record.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.pages.results import likelihood_name

FIGURE = records.ROOT / "docs" / "figures" / "likelihood.svg"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
SPLITS = {"test": 1.0, "train": 0.35}  # and how opaque the line is
Row = dict[str, Any]


def curves(rows: list[Row]) -> dict[int, list[tuple[int, Row]]]:
    """For each number of neurons, the rows of capsules without chains by their number of capsules."""
    by_neurons: dict[int, list[tuple[int, Row]]] = defaultdict(list)
    for row in rows:
        capsules, times, neurons = row["model"].partition("x")
        if times and capsules.isdecimal() and neurons.isdecimal():
            by_neurons[int(neurons)].append((int(capsules), row))
    return {neurons: sorted(by_neurons[neurons], key=lambda entry: entry[0]) for neurons in sorted(by_neurons)}


def draw(rows: list[Row]) -> Figure:
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axis = figure.subplots()
    capsules: set[int] = set()
    for colour, (neurons, entries) in zip(COLOURS, curves(rows).items(), strict=False):
        counts = [count for count, _ in entries]
        capsules.update(counts)
        for split, opacity in SPLITS.items():
            values = [sum(row[split]) / 2 for _, row in entries]
            images = "test" if split == "test" else "training"
            label = f"{neurons} neurons, {images} images"
            axis.plot(counts, values, "o-", color=colour, alpha=opacity, label=label)
    for row in rows:
        if "x" in row["model"]:
            continue
        value = sum(row["test"]) / 2
        axis.axhline(value, color="#777777", linewidth=0.8, linestyle="--")
        axis.text(max(capsules), value, likelihood_name(row["model"]), fontsize=7, ha="right", va="bottom")
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
