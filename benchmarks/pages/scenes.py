"""Write docs/scenes.md from the records of `python -m benchmarks.quality.scenes`.

    python -m benchmarks.pages.scenes

The text around the tables is in benchmarks/pages/scenes.md.in.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import records
from benchmarks.pages.markdown import fill, number, table
from capspoe.model.recognition import Recognition

PAGE = Path(os.path.relpath(records.ROOT / "docs" / "scenes.md"))
TEMPLATE = Path(__file__).parent / "scenes.md.in"
COLUMNS = {  # of a record: title and digits
    "right": ("all labels right", 3),
    "among nine": ("both labels among the nine best", 3),
    "error": ("error", 4),
    "error cut out": ("error, cut out", 4),
    "iou": ("intersection over union", 3),
    "ari": ("ARI", 3),
    "cpu_seconds": ("seconds an image", 3),
}
Record = dict[str, dict[str, Any]]  # name of a row, its scores


class SceneTable(NamedTuple):
    """A table of the page: its columns, and what it calls each row of the records."""

    columns: tuple[str, ...]
    rows: dict[str, str]
    data: str = "mnist"


TABLES = {
    "pairs": SceneTable(
        ("right", "error", "error cut out", "iou", "ari", "cpu_seconds"),
        {
            "gate's two best": "gate's two best capsules",
            "gate's two best, no routing": "the same without routing",
            "gate's two best, routing over upper capsules": "the same with routing over the upper capsules",
            "codes composed": "codes composed: logits added relative to a blank image's",
            "spectral groups + NMF": "spectral groups + NMF",
            "nearest pair of 2,000 images": "nearest pair of 2,000 training images",
            "spectral groups + PCA, search alone": "spectral groups + PCA instead of capsules, search alone",
            "search alone": "capsules, search alone",
            "recognition network": "recognition network alone",
            "spectral groups + PCA, same search": "spectral groups + PCA, search with the recognition network",
            "search": "**capsules, search with the recognition network**",
            "told the capsules": "search, told the capsules",
            "supervised network": "*with labels:* two convolutions",
            "supervised capsules": "*with labels:* a narrow copy of Sabour's capsules",
        },
    ),
    "routing": SceneTable(
        ("right", "among nine"),
        {
            "gate's two best": "three iterations",
            "gate's two best, no routing": "one iteration, which is no routing",
            "gate's two best, routing over upper capsules": "three iterations over the upper capsules",
            "assignment energy": "assignment of lower capsules to two upper ones, lowest free energy",
            "recognition network": "the recognition network instead of the gate",
        },
    ),
    "routed": SceneTable(
        ("right", "error", "ari"),
        {
            "as it is": "search as it is",
            "starts by routing": "poses started by routing, three iterations",
            "starts without routing": "poses started by one iteration, which is no routing",
            "starts by assignment": "poses started by the assignment energy",
            "soft maximum": "every pixel shared by routing weights over the objects",
        },
    ),
    "shifted": SceneTable(
        ("right", "error", "ari", "cpu_seconds"),
        {
            "shifted, gate": "gate's two best",
            "shifted, recognition network": "recognition network alone",
            "shifted, search": "search",
            "shifted, search with shift": "search, `shift=2`",
        },
    ),
    "three": SceneTable(
        ("right", "error", "ari", "cpu_seconds"),
        {
            "three, gate": "gate's three best",
            "three, recognition network": "recognition network alone",
            "three, search": "search",
        },
    ),
    "damage": SceneTable(
        ("right",),
        {
            "hole, gate": "a 9x9 hole near the middle, gate",
            "hole, search alone": "a 9x9 hole near the middle, search alone",
            "hole, recognition network": "a 9x9 hole near the middle, recognition network",
            "hole, search": "a 9x9 hole near the middle, search",
            "missing side, gate": "two fifths missing at a side, gate",
            "missing side, search alone": "two fifths missing at a side, search alone",
            "missing side, recognition network": "two fifths missing at a side, recognition network",
            "missing side, search": "two fifths missing at a side, search",
            "fragments, gate": "fragments of two other digits, gate",
            "fragments, search alone": "fragments of two other digits, search alone",
            "fragments, recognition network": "fragments of two other digits, recognition network",
            "fragments, search": "fragments of two other digits, search",
        },
    ),
    "occluded": SceneTable(
        ("right", "error", "ari", "cpu_seconds"),
        {
            "occluded, gate": "gate's two best",
            "occluded, recognition network": "recognition network alone",
            "occluded, search alone": "search alone",
            "occluded, search": "search",
        },
        "fashion-mnist",
    ),
}


class Goal(NamedTuple):
    """What the search should reach on average over the seeds."""

    words: str
    row: str
    column: str
    value: float
    at_least: bool

    def met(self, value: float) -> bool:
        if self.at_least:
            return value >= self.value
        return value <= self.value


GOALS = (
    Goal("both labels right, full overlap", "search", "right", 0.93, True),
    Goal("the same, moved by up to two pixels", "shifted, search with shift", "right", 0.80, True),
    Goal("error of each digit, decoded", "search", "error", 0.017, False),
    Goal("error of each digit, cut out of the image", "search", "error cut out", 0.017, False),
    Goal("ARI", "search", "ari", 0.75, True),
    Goal("seconds an image", "search", "cpu_seconds", 0.2, False),
    Goal("a 9x9 hole", "hole, search", "right", 0.85, True),
    Goal("two fifths missing at a side", "missing side, search", "right", 0.85, True),
)


def rows_named(stored: list[Record], name: str) -> list[dict[str, Any]]:
    """A row of every record that has it."""
    return [record[name] for record in stored if name in record]


def mean(rows: list[dict[str, Any]], column: str) -> str:
    values = [row[column] for row in rows if column in row]
    if not values:
        return ""
    return number(values, COLUMNS[column][1])


def scene_table(stored: list[Record], shown: SceneTable) -> str:
    """Means over the records that have a row; ± is half the range."""
    titles = ["", "scenes"]
    for column in shown.columns:
        titles.append(COLUMNS[column][0])
    lines = []
    for name, words in shown.rows.items():
        rows = rows_named(stored, name)
        scenes = " + ".join(str(row["scenes"]) for row in rows)
        cells = [words, scenes or "not measured yet"]
        for column in shown.columns:
            cells.append(mean(rows, column))
        lines.append(cells)
    return table(titles, lines)


def goals_table(stored: list[Record]) -> str:
    """The goals of the search, and whether its means reach them."""
    lines = []
    for goal in GOALS:
        rows = rows_named(stored, goal.row)
        verdict = ""
        if rows:
            met = goal.met(np.mean([row[goal.column] for row in rows]))
            verdict = "met" if met else "**missed**"
        _, digits = COLUMNS[goal.column]
        lines.append([goal.words, number([goal.value], digits), mean(rows, goal.column), verdict])
    return table(["", "goal", "reached", ""], lines)


def multimnist_table(rows: list[dict[str, Any]]) -> str:
    """The rows of benchmarks/quality/multimnist.py: one for each seed."""
    if not rows:
        return "*Not measured yet.*"
    titles = ["seed", "pairs", "search", "recognition network alone", "error", "PSNR", "ARI"]
    scores = {"right": 3, "recognition alone": 3, "error": 4, "psnr": 1, "ari": 3}
    lines = []
    for row in rows:
        cells = [number([row[score]], digits) for score, digits in scores.items()]
        lines.append([str(row["seed"]), f"{row['pairs']:,}", *cells])
    return table(titles, lines)


def stored_scenes(data: str, folder: Path) -> list[Record]:
    """The records of a data set, one for each seed."""
    names = [name for name in records.names(folder) if name.startswith(f"scenes-{data}-")]
    return [records.read(name, folder=folder) for name in names]


def page(folder: Path = records.FOLDER) -> str:
    """The text of docs/scenes.md."""
    parts = {}
    for name, shown in TABLES.items():
        parts[name] = scene_table(stored_scenes(shown.data, folder), shown)
    parts["goals"] = goals_table(stored_scenes("mnist", folder))
    weights = sum(parameter.numel() for parameter in Recognition((28, 28, 1), 20).parameters())
    parts["weights"] = f"{round(weights, -3):,}"
    parts["told error"] = mean(rows_named(stored_scenes("mnist", folder), "told the capsules"), "error")
    parts["multimnist"] = multimnist_table(records.read("multimnist", default=[], folder=folder))
    tried = [list(row.values()) for row in records.read("scenes-tried", folder=folder)]
    parts["tried"] = table(["", "both right", "instead of", "pairs"], tried)
    return fill(TEMPLATE.read_text(), parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    PAGE.write_text(page())
    print(PAGE)


if __name__ == "__main__":
    main()
