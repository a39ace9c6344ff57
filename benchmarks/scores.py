"""Scores of several evaluations side by side."""

from statistics import mean
from typing import Any

COLUMNS = {
    "fid": ("FID", 1),
    "kid": ("KID", 2),
    "precision": ("precision", 3),
    "density": ("density", 2),
    "recall": ("recall", 3),
    "coverage": ("coverage", 3),
    "purity": ("purity", 3),
    "nmi": ("NMI", 3),
    "probe": ("probe", 3),
}
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
