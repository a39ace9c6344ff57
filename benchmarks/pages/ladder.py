"""Make the table and the figure of the ladder from its record.

    python -m benchmarks.pages.ladder [--record ladder] [--out docs/figures/ladder.svg]

Prints the table; means and half ranges across seeds.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks import records
from benchmarks.quality.ladder import RECORD
from benchmarks.quality.variants import mean_and_range

Row = dict[str, Any]
SCORES: dict[str, Callable[[Row], float | None]] = {
    "FID": lambda row: row["drawn"]["fid"],
    "recall": lambda row: row["drawn"]["recall"],
    "purity": lambda row: row["purity"],
    "probe": lambda row: row["probe"],
    "energy's FID": lambda row: row.get("energy", {}).get("fid"),
}
PANELS = ("FID", "recall", "purity", "probe")
COLOURS = {"mnist": "#0072b2", "fashion-mnist": "#d55e00"}


def rungs_of(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The part and name of every rung, in the order of the record."""
    ladder = [row for row in rows if row["part"] == "ladder"]
    removals = [row for row in rows if row["part"] == "removals"]
    return list(dict.fromkeys((row["part"], row["rung"]) for row in (*ladder, *removals)))


def data_sets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["data"] for row in rows))


def count_of_ladder(rungs: Sequence[tuple[str, str]]) -> int:
    """Number of rungs of the ladder, which come before the removals."""
    return sum(part == "ladder" for part, _ in rungs)


def rows_of(rows: Sequence[Row], name: str, rung: tuple[str, str]) -> list[Row]:
    return [row for row in rows if row["data"] == name and (row["part"], row["rung"]) == rung]


def values(rows: Sequence[Row], score: str) -> list[float]:
    """Of the seeds that did not diverge."""
    scores = [SCORES[score](row) for row in rows if "diverged" not in row]
    return [value for value in scores if value is not None]


def table(rows: Sequence[Row], name: str) -> str:
    """Markdown, one line for each rung."""
    lines = ["| | seeds | " + " | ".join(SCORES) + " |", "|---|---|" + "---|" * len(SCORES)]
    for rung in rungs_of(rows):
        own = rows_of(rows, name, rung)
        if not own:
            continue
        cells = [cell(own, score) for score in SCORES]
        lines.append(f"| {rung[1]} | {len(own)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(rows: Sequence[Row], score: str) -> str:
    numbers = values(rows, score)
    if not numbers:
        return "diverged" if any("diverged" in row for row in rows) else ""
    digits = 1 if "FID" in score else 3
    summary = mean_and_range(numbers)
    text = f"{summary['mean']:.{digits}f}"
    if len(numbers) > 1:
        text += f" ± {summary['half_range']:.{digits}f}"
    return text


def draw(rows: Sequence[Row]) -> Figure:
    """A panel for each score: rungs from top to bottom, a dot for each seed, a line through the means."""
    rungs = rungs_of(rows)
    first_removal = count_of_ladder(rungs)
    # A gap separates the ladder from the removals.
    height = np.array([float(n + (n >= first_removal)) for n in range(len(rungs))])
    figure = Figure(figsize=(10.5, 0.32 * len(rungs) + 1.3), layout="constrained")
    for axes, score in zip(figure.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
        for name in data_sets(rows):
            draw_score(axes, rows, name, score, height)
        axes.set_title(score, fontsize=10)
        axes.grid(alpha=0.3)
        if score == "FID":
            axes.set_xscale("log")
            axes.set_yticks(height, [rung for _, rung in rungs])
            axes.invert_yaxis()
            axes.legend(fontsize=8, loc="upper left")
    return figure


def draw_score(axes: Axes, rows: Sequence[Row], name: str, score: str, height: np.ndarray) -> None:
    rungs = rungs_of(rows)
    numbers = [values(rows_of(rows, name, rung), score) for rung in rungs]
    first_removal = count_of_ladder(rungs)
    colour = COLOURS[name]
    label = name
    for part in (slice(0, first_removal), slice(first_removal, None)):
        means = [np.mean(seeds) if seeds else np.nan for seeds in numbers[part]]
        if part.start == 0:  # removals do not build on each other
            axes.plot(means, height[part], color=colour, alpha=0.6, linewidth=1.2)
        for y, seeds in zip(height[part], numbers[part], strict=True):
            axes.plot(seeds, [y] * len(seeds), "o", color=colour, markersize=4, label=label)
            label = "_nolegend_"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", default=RECORD, help=f"default: {RECORD}")
    parser.add_argument("--out", type=Path, default=Path("docs/figures/ladder.svg"))
    options = parser.parse_args(arguments)
    rows = records.read(options.record)
    for name in data_sets(rows):
        print(f"\n{name}\n\n{table(rows, name)}")
    draw(rows).savefig(options.out)


if __name__ == "__main__":
    main()
