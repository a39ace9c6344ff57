"""What the CPU kernels gain: every pair measured in turn, in one run, best of several.

Times vary from machine to machine and from minute to minute; ratios of two things that ran side by side vary
much less. `capspoe bench` prints `table(measure())` and writes the same as JSON.
"""

import os
import platform
from pathlib import Path

import torch
from rich.console import Console

from capspoe.bench.results import Results, Row, table
from capspoe.bench.rows import Tell, help_row, memory_row, routing_rows, scaling, step_rows
from capspoe.bench.timing import BATCH, ITERATIONS, LOWER, UPPER, by, interleaved, layer_and_codes, slope

__all__ = ["Results", "Row", "by", "command", "interleaved", "layer_and_codes", "measure", "slope", "table"]


def measure(rounds: int = 9, memory: bool = True, tell: Tell = lambda what: None) -> Results:
    """Everything, in a few minutes; fewer rounds are quicker and noisier."""
    results = Results(
        {
            "processor": platform.processor() or platform.machine(),
            "threads": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "size": {"B": BATCH, "lower": LOWER, "upper": UPPER, "iterations": ITERATIONS},
        }
    )
    results.rows += routing_rows(rounds, tell) + step_rows(rounds, tell)
    if memory:
        results.rows.append(memory_row(tell))
    rows, results.scaling = scaling(3 * rounds, tell, memory)  # each takes milliseconds
    results.rows += [*rows, help_row(max(2, rounds // 3), tell)]
    return results


def command(rounds: int, out: Path | None) -> None:
    """What `capspoe bench` does: measure, print the table, write JSON if asked."""
    console = Console(width=None if Console().is_terminal else 140)
    results = measure(rounds, tell=lambda what: console.print(f"[dim]{what} ...[/dim]"))
    console.print(table(results))
    if out:
        results.write(out)
        print(out)
