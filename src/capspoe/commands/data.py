"""`capspoe data`: list, fetch and verify data sets."""

from typing import Annotated, Any, Literal

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from capspoe.commands.arguments import AsJson, command, print_json
from capspoe.data import CATALOGUE, Entry, fetch, verify
from capspoe.errors import DataError, InputError

NAMES = ", ".join(name for name, entry in CATALOGUE.items() if entry.files)


@command
def data(
    action: Positional[Literal["list", "fetch", "verify"]],
    name: Annotated[Positional[str | None], arg(help=NAMES)] = None,
    offline: bool = False,
    json: AsJson = False,
) -> None:
    """List the data sets, download one into the cache, or verify its files.

    Args:
        offline: Use only the cache; never download.
    """
    if action == "list" and json:
        print_json([describe(entry) for entry in CATALOGUE.values()])
    elif action == "list":
        print_list()
    elif name is None:
        raise InputError(f"which data set? capspoe data {action} NAME")
    elif action == "fetch":
        folder = fetch(name, offline)
        if json:
            print_json({"name": name, "folder": str(folder)})
        else:
            print(folder)
    else:
        files = verify(name)
        if json:
            print_json({"name": name, "files": files})
        else:
            for file, status in files.items():
                print(f"{status:<8} {file}")
        if bad := [file for file, status in files.items() if status != "ok"]:
            problem = f"{len(bad)} files are missing or damaged"
            raise DataError(f"{name}: {problem}; run `capspoe data fetch {name}`")
        if not json:
            print(f"{name}: complete and verified")


def describe(entry: Entry) -> dict[str, Any]:
    """What is known about a data set, as plain values."""
    height, width, channels = entry.shape
    return {
        "name": entry.name,
        "train": entry.train,
        "test": entry.test,
        "shape": [height, width, channels],
        "classes": entry.classes,
        "bytes": sum(file.bytes for file in entry.files),
        "cached": entry.cached,
        "licence": entry.licence,
    }


def print_list() -> None:
    """Print the data sets, whether they are in the cache, and their licences."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("name")
    table.add_column("images", justify="right")
    table.add_column("size")
    table.add_column("on disk", justify="right")
    table.add_column("cached")
    table.add_column("licence")
    for entry in CATALOGUE.values():
        height, width, channels = entry.shape
        colour = "grey" if channels == 1 else "colour"
        if entry.files:
            disk = f"{sum(file.bytes for file in entry.files) / 1e6:.0f} MB"
            cached = "yes" if entry.cached else "no"
        else:
            disk = "-"
            cached = "ships with scikit-learn"
        count = f"{entry.train + entry.test:,}"
        table.add_row(entry.name, count, f"{height}x{width} {colour}", disk, cached, entry.licence)
    # A file or a pipe has no width of its own; 160 columns break no line.
    width_of_output = None if Console().is_terminal else 160
    Console(width=width_of_output).print(table)
