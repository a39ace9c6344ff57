"""What a benchmark found: ratios beside what they should be, as a table and as JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One line of the table: `value` should be at least `target`, or if `at_most`, from `least` to `target`."""

    what: str
    against: str
    value: float
    target: float
    unit: str = "x"
    at_most: bool = False
    least: float = 0.0
    detail: str = ""

    @property
    def reached(self) -> bool:
        return self.least <= self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def wanted(self) -> str:
        bound = f"{self.least:g} to" if self.least else "≤" if self.at_most else "≥"
        return f"{bound} {self.target:.3g}"


@dataclass
class Results:
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    scaling: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        data = asdict(self)
        for row, entry in zip(self.rows, data["rows"], strict=True):
            entry["reached"] = row.reached
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1) + "\n")


def table(results: Results) -> Table:
    out = Table(title=f"{results.machine['threads']} threads, B 128, 576x8 -> 20x16, 3 iterations")
    for name in ("what", "against", "ratio", "target", "", "measured"):
        out.add_column(name, justify="right" if name in ("ratio", "target") else "left")
    for row in results.rows:
        mark = "yes" if row.reached else "no"
        out.add_row(row.what, row.against, f"{row.value:.3g}{row.unit}", row.wanted, mark, row.detail)
    return out
