"""`capspoe data`."""

from dataclasses import dataclass
from typing import Literal

from capspoe.commands.parsing import parse
from capspoe.errors import InputError


def data(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Data:
        """Data sets: list them, fetch one into the cache, or verify it byte by byte."""

        action: tyro.conf.Positional[Literal["list", "fetch", "verify"]]
        name: tyro.conf.Positional[str | None] = None
        """mnist, fashion-mnist or cifar10"""
        offline: bool = False
        """Use only what is in the cache."""

    a = parse(Data, "data", argv)
    if a.action != "list" and a.name is None:
        raise InputError(f"name the data set: capspoe data {a.action} NAME")
    from capspoe.data import console

    if a.action == "list":
        console.print_list()
    elif a.action == "fetch":
        console.print_fetch(a.name, a.offline)
    else:
        console.print_verify(a.name)
