"""docs/scenes.md from the records of benchmarks/scenes.py and benchmarks/scenes.md.in, and its figure."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from results import RECORDS, fill
from scene_data import Answer, Scenes
from scores import number

from capspoe.figures.explanation import tinted
from capspoe.figures.sheet import Row, draw_rows

TABLES = {  # of the page: the data set, its rows, and its columns
    "pairs": ("mnist", {
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
    }, ("right", "error", "error cut out", "iou", "ari", "cpu_seconds")),
    "routing": ("mnist", {
        "gate's two best": "three iterations",
        "gate's two best, no routing": "one iteration, which is no routing",
        "gate's two best, routing over upper capsules": "three iterations over the upper capsules",
        "assignment energy": "assignment of lower capsules to two upper ones, lowest free energy",
        "recognition network": "the recognition network instead of the gate",
    }, ("right", "among nine")),
    "routed": ("mnist", {
        "as it is": "search as it is",
        "starts by routing": "poses started by routing, three iterations",
        "starts without routing": "poses started by one iteration, which is no routing",
        "starts by assignment": "poses started by the assignment energy",
        "soft maximum": "every pixel shared by routing weights over the objects",
    }, ("right", "error", "ari")),
    "shifted": ("mnist", {
        "shifted, gate": "gate's two best", "shifted, recognition network": "recognition network alone",
        "shifted, search": "search", "shifted, search with shift": "search, `shift=2`",
    }, ("right", "error", "ari", "cpu_seconds")),
    "three": ("mnist", {
        "three, gate": "gate's three best", "three, recognition network": "recognition network alone",
        "three, search": "search",
    }, ("right", "error", "ari", "cpu_seconds")),
    "damage": ("mnist", {
        f"{kind}, {who}": f"{words}, {who}"
        for kind, words in (("hole", "a 9x9 hole near the middle"), ("missing side", "two fifths missing at a side"),
                            ("fragments", "fragments of two other digits"))
        for who in ("gate", "search alone", "recognition network", "search")
    }, ("right",)),
    "occluded": ("fashion-mnist", {
        "occluded, gate": "gate's two best", "occluded, recognition network": "recognition network alone",
        "occluded, search alone": "search alone", "occluded, search": "search",
    }, ("right", "error", "ari", "cpu_seconds")),
}  # fmt: skip
MANY = ("gate's two best", "gate's two best, no routing", "gate's two best, routing over upper capsules",
        "recognition network", "search alone", "search")  # fmt: skip
COLUMNS = {
    "right": ("all labels right", 3),
    "among nine": ("both labels among the nine best", 3),
    "error": ("error", 4),
    "error cut out": ("error, cut out", 4),
    "iou": ("intersection over union", 3),
    "ari": ("ARI", 3),
    "cpu_seconds": ("seconds an image", 3),
}


GOALS = (  # what, row, column, goal, and whether more is better
    ("both labels right, full overlap", "search", "right", 0.88, True),
    ("the same, moved by up to two pixels", "shifted, search with shift", "right", 0.72, True),
    ("error of each digit, decoded", "search", "error", 0.017, False),
    ("error of each digit, cut out of the image", "search", "error cut out", 0.017, False),
    ("ARI", "search", "ari", 0.75, True),
    ("seconds an image", "search", "cpu_seconds", 0.2, False),
    ("a 9x9 hole", "hole, search", "right", 0.85, True),
    ("two fifths missing at a side", "missing side, search", "right", 0.85, True),
)


def goals(records: list[dict[str, Any]]) -> str:
    """The goals of the search and whether its means reach them."""
    lines = ["| | goal | reached | |", "|---" * 4 + "|"]
    for what, row, column, goal, more in GOALS:
        found = [record[row] for record in records if row in record]
        value = np.mean([f[column] for f in found]) if found else np.nan
        verdict = "met" if (value >= goal if more else value <= goal) else "**missed**"
        places = COLUMNS[column][1]
        lines.append(f"| {what} | {number([goal], places)} | {mean(found, column)} | {verdict if found else ''} |")
    return "\n".join(lines)


def mean(rows: list[dict[str, Any]], column: str) -> str:
    values = [row[column] for row in rows if column in row]
    return number(values, COLUMNS[column][1]) if values else ""


def table(records: list[dict[str, Any]], names: dict[str, str], columns: tuple[str, ...]) -> str:
    """Means over the records that have a row; ± is half the range."""
    lines = ["| | scenes | " + " | ".join(COLUMNS[c][0] for c in columns) + " |", "|---" * (len(columns) + 2) + "|"]
    for name, words in names.items():
        found = [record[name] for record in records if name in record]
        count = " + ".join(str(row["scenes"]) for row in found) or "not measured yet"
        lines.append(f"| {words} | {count} | " + " | ".join(mean(found, column) for column in columns) + " |")
    return "\n".join(lines)


def page(records: Path = RECORDS) -> str:
    """docs/scenes.md."""
    found = {}
    for name, (data, names, columns) in TABLES.items():
        stored = [json.loads(path.read_text()) for path in sorted(records.glob(f"scenes-{data}-*.json"))]
        found[name] = table(stored, names, columns)
        for row in names:
            found |= {f"{row}: {c}": mean([record[row] for record in stored if row in record], c) for c in columns}
    found["goals"] = goals([json.loads(path.read_text()) for path in sorted(records.glob("scenes-mnist-*.json"))])
    tried = [" | ".join(row.values()) for row in json.loads((records / "scenes-tried.json").read_text())]
    found["tried"] = "\n".join(
        ["| | both right | instead of | pairs |", "|---" * 4 + "|", *(f"| {row} |" for row in tried)]
    )
    return fill((Path(__file__).parent / "scenes.md.in").read_text(), found)


def draw_pairs(scenes: Scenes, answer: Answer) -> Figure:
    """What is seen, what was written, and what is found."""
    truth, count = scenes.objects / 255, len(scenes.images)
    swap = np.square(answer.objects - truth).mean((1, 2, 3, 4)) > np.square(answer.objects - truth[:, ::-1]).mean(
        (1, 2, 3, 4)
    )
    truth = np.where(swap[:, None, None, None, None], truth[:, ::-1], truth)
    one, two = np.eye(2)[:, :, None, None] * np.ones((2, 1, *scenes.images.shape[1:3]))

    def colours(images: np.ndarray, owner: np.ndarray) -> np.ndarray:
        return np.stack([tinted(*pair) for pair in zip(images, owner, strict=True)])

    written = colours(truth[:, 0], [one] * count), colours(truth[:, 1], [two] * count)
    found = [colours(answer.objects[:, m], [owner] * count) for m, owner in enumerate((one, two))]
    seen = np.repeat(scenes.images / 255, 3, -1)
    right = (np.sort(answer.labels, 1) == np.sort(scenes.labels, 1)).all(1)
    marks = [
        " and ".join(map(str, labels)) + ("" if ok else " (wrong)")
        for labels, ok in zip(answer.labels, right, strict=True)
    ]
    rows = [
        Row("seen", [seen], "two test digits"),
        Row("found", [colours(scenes.images / 255, answer.owner)], "pixels by object", marks),
        Row("one", [found[0]], "decoded alone"),
        Row("the other", [found[1]], "decoded alone"),
        Row("written", [np.maximum(*written)], "the truth"),
    ]
    words = "Capsules trained without labels on single digits; none saw two at once. The first ten pairs of the seed."
    return draw_rows("Two digits at once, pulled apart", words, rows, 84)
