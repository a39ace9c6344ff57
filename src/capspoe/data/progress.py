"""Progress on a terminal; silence everywhere else, where the one line per attempt says enough."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def download_bar(label: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on stderr that moves by the bytes it is told; without a total it only pulses."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    amount = [DownloadColumn()] if total else []
    columns = (TextColumn("{task.description}"), BarColumn(), *amount, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)
