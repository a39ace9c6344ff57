"""Measure, print the table, write JSON and the plots: python benchmarks/run.py [--rounds 9]"""

import argparse
from pathlib import Path

from plot import draw
from rich.console import Console

from capspoe import bench

HERE = Path(__file__).resolve().parent


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
    console.print(f"Written: {options.out.name}, {options.figure.name}")


if __name__ == "__main__":
    main()
