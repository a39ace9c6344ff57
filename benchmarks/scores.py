"""Scores of several evaluations side by side."""

from collections import defaultdict
from statistics import mean
from typing import Any

from capspoe.evaluate.baselines import ABLATIONS

COLUMNS = {
    "fid": ("FID", 1),
    "precision": ("precision", 3),
    "recall": ("recall", 3),
    "purity": ("purity", 3),
    "nmi": ("NMI", 3),
    "probe": ("probe", 3),
}
OFF = {
    *ABLATIONS,
    "sharpness 1 instead of 0.3",
}  # the records are of a time when sharpness was 0.3 by default
Evaluation = dict[str, Any]


def number(values: list[float], digits: int) -> str:
    """The mean, and half the range if there are several different values; .95 rather than 0.95."""
    middle, half = shown(mean(values), digits), shown((max(values) - min(values)) / 2, digits)
    return f"{middle}\u00a0±\u00a0{half}" if float(half) else middle


def shown(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.removeprefix("0") if digits > 2 else text


def table(evaluations: list[Evaluation], names: list[str]) -> str:
    titles = ["model", *(title for title, _ in COLUMNS.values())]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name in names:
        rows = [row for e in evaluations for row in e["rows"] if row["name"] == name]
        cells = []
        for key, (_, digits) in COLUMNS.items():
            values = [row[key] for row in rows if row.get(key) is not None]
            cells.append(number(values, digits) if values else "")
        failed = [row["failed"] for row in rows if "failed" in row]
        lines.append(f"| {name}{f' (failed: {failed[0]})' if failed else ''} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


class Rows:
    """The rows of several evaluations by their names."""

    def __init__(self, evaluations: list[Evaluation]) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for evaluation in evaluations:
            for row in evaluation["rows"]:
                self.rows[row["name"]].append(row)

    def all(self, name: str, score: str) -> list[float]:
        return [row[score] for row in self.rows[name] if row.get(score) is not None]

    def mean(self, name: str, score: str) -> float:
        return mean(self.all(name, score))

    def shown(self, name: str, score: str) -> str:
        return number(self.all(name, score), COLUMNS[score][1])

    def least_of_others(self, score: str) -> float:
        """The smallest score of the other models, without floors and variants."""
        others = [n for n in self.rows if not n.startswith(("capspoe", "floor")) and n not in OFF]
        return min(self.mean(n, score) for n in others if self.all(n, score))
