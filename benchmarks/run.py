"""Measure, print the table, write JSON, the plots and the table in docs/performance.md.

python benchmarks/run.py [--rounds 9]
"""

import argparse
import re
from pathlib import Path

from plot import draw
from rich.console import Console

from capspoe import bench

HERE = Path(__file__).resolve().parent


def write_table(results: bench.Results, page: Path) -> None:
    """Put the table in the place of the page's first one."""
    lines = ["| what | against | ratio | target | reached | measured |", "|---|---|---|---|---|---|"]
    for row in results.rows:
        cells = [row.what, row.against, f"{row.value:.3g}{row.unit}", row.wanted]
        lines.append("| " + " | ".join([*cells, "yes" if row.reached else "no", row.detail]) + " |")
    text = page.read_text()
    page.write_text(re.sub(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", text, count=1, flags=re.M))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="how often each side is timed; the best counts")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs" / "figures" / "scaling.svg")
    options = parser.parse_args()
    console = Console(width=140)
    results = bench.measure(options.rounds, tell=lambda what: console.print(f"[dim]{what} ...[/dim]"))
    console.print(bench.table(results))
    results.write(options.out)
    draw(results.scaling, options.figure)
    write_table(results, HERE.parent / "docs" / "performance.md")
    console.print(f"Written: {options.out.name}, {options.figure.name}")


if __name__ == "__main__":
    main()
