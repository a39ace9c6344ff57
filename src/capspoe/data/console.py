"""What `capspoe data` prints."""

from rich.console import Console
from rich.table import Table

from capspoe.data.chain import fetch, verify
from capspoe.data.entries import catalog
from capspoe.errors import DataError


def print_list() -> None:
    """The data sets, whether they are here, and their terms."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("name", "images", "size", "on disk", "here", "terms"):
        table.add_column(title, justify="right" if title in ("images", "on disk") else "left")
    for entry in catalog():
        height, width, colours = entry.shape
        disk = f"{entry.size_mb:.0f} MB" if entry.files else "-"
        here = "ships with scikit-learn" if not entry.files else "cached" if entry.cached else "no"
        size = f"{height}x{width} {'grey' if colours == 1 else 'colour'}"
        table.add_row(entry.name, f"{entry.images:,}", size, disk, here, entry.terms)
    Console(width=None if Console().is_terminal else 160).print(table)


def print_fetch(name: str, offline: bool) -> None:
    """Fetch a data set and say where it is."""
    print(fetch(name, offline))


def print_verify(name: str) -> None:
    """The state of each file of a data set; an error unless all are in order."""
    result = verify(name)
    for file in result.files:
        print(f"{file.status:<15} {file.name}  sha256 {(file.found or '-')[:16]}")
    if not result.ok:
        raise DataError(f"{name} is not in order; `capspoe data fetch {name}` mends it")
    print(f"{name}: in order")
