"""What an evaluation says while it goes on: a bar on a terminal, a line for each part elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn


class Teller:
    """Parts are started with `part`; inside one, `told(done, total)` moves its bar."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=quiet or not sys.stderr.isatty(),
        )
        self.task = self.bar.add_task("", total=None, visible=False)

    def told(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total)

    @contextmanager
    def part(self, label: str) -> Iterator[None]:
        """One part of the evaluation, with its time."""
        self.bar.reset(self.task, description=label, total=None, visible=True)
        if self.bar.disable:
            self.console.print(label, markup=False)
        began = time.monotonic()
        yield
        if not self.bar.disable:
            self.console.print(f"{label}  {time.monotonic() - began:.0f} s", markup=False)
