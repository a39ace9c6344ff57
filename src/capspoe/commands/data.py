"""`capspoe data`: list, fetch and verify data sets."""

from dataclasses import dataclass
from typing import Annotated, Literal

from capspoe.commands.arguments import parse
from capspoe.errors import DataError, InputError


def data(argv: list[str]) -> None:
    import tyro

    from capspoe.data.catalogue import CATALOGUE

    named = ", ".join(name for name, entry in CATALOGUE.items() if entry.files)

    @dataclass(frozen=True)
    class Data:
        """List the data sets, download one into the cache, or verify its files."""

        action: tyro.conf.Positional[Literal["list", "fetch", "verify"]]
        name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(help=named)] = None
        offline: bool = False
        """Use only the cache; never download."""

    a = parse(Data, "data", argv)
    if a.action == "list":
        print_list()
    elif a.name is None:
        raise InputError(f"which data set? capspoe data {a.action} NAME")
    elif a.action == "fetch":
        from capspoe.data import fetch

        print(fetch(a.name, a.offline))
    else:
        print_verification(a.name)


def print_list() -> None:
    """Print the data sets, whether they are in the cache, and their licences."""
    from rich.console import Console
    from rich.table import Table

    from capspoe.data import CATALOGUE

    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("name", "images", "size", "on disk", "cached", "licence"):
        table.add_column(title, justify="right" if title in ("images", "on disk") else "left")
    for entry in CATALOGUE.values():
        height, width, channels = entry.shape
        size = f"{height}x{width} {'grey' if channels == 1 else 'colour'}"
        disk = f"{entry.size_mb:.0f} MB" if entry.files else "-"
        cached = "ships with scikit-learn" if not entry.files else "yes" if entry.cached else "no"
        table.add_row(entry.name, f"{entry.images:,}", size, disk, cached, entry.licence)
    Console(width=None if Console().is_terminal else 160).print(table)


def print_verification(name: str) -> None:
    """Print the state of each file of a data set; raise an error unless all are right."""
    from capspoe.data import verify

    files = verify(name)
    for file, status in files.items():
        print(f"{status:<8} {file}")
    if bad := [file for file, status in files.items() if status != "ok"]:
        raise DataError(f"{name}: {len(bad)} files are missing or damaged; run `capspoe data fetch {name}`")
    print(f"{name}: complete and verified")
