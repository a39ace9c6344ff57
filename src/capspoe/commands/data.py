"""`capspoe data`: list, fetch and verify data sets."""

from typing import Annotated, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from capspoe.commands.arguments import command
from capspoe.data import CATALOGUE, fetch, verify
from capspoe.errors import DataError, InputError

NAMES = ", ".join(name for name, entry in CATALOGUE.items() if entry.files)


@command
def data(
    action: Positional[Literal["list", "fetch", "verify"]],
    name: Annotated[Positional[str | None], arg(help=NAMES)] = None,
    offline: bool = False,
) -> None:
    """List the data sets, download one into the cache, or verify its files.

    Args:
        offline: Use only the cache; never download.
    """
    if action == "list":
        print_list()
    elif name is None:
        raise InputError(f"which data set? capspoe data {action} NAME")
    elif action == "fetch":
        print(fetch(name, offline))
    else:
        files = verify(name)
        for file, status in files.items():
            print(f"{status:<8} {file}")
        if bad := [file for file, status in files.items() if status != "ok"]:
            raise DataError(f"{name}: {len(bad)} files are missing or damaged; run `capspoe data fetch {name}`")
        print(f"{name}: complete and verified")


def print_list() -> None:
    """Print the data sets, whether they are in the cache, and their licences."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("name", "images", "size", "on disk", "cached", "licence"):
        table.add_column(title, justify="right" if title in ("images", "on disk") else "left")
    for entry in CATALOGUE.values():
        height, width, channels = entry.shape
        size = f"{height}x{width} {'grey' if channels == 1 else 'colour'}"
        disk = f"{sum(file.bytes for file in entry.files) / 1e6:.0f} MB" if entry.files else "-"
        cached = "ships with scikit-learn" if not entry.files else "yes" if entry.cached else "no"
        table.add_row(entry.name, f"{entry.train + entry.test:,}", size, disk, cached, entry.licence)
    Console(width=None if Console().is_terminal else 160).print(table)
