"""Parsing that the commands share."""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from capspoe.config import Device
from capspoe.errors import InputError
from capspoe.run.bundled import BUNDLED, find_run

RUN_HELP = "The run folder, or mnist-small, which ships with the package."
RunFolder = tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN", help=RUN_HELP)]]
DEFAULT_RUN = Path(BUNDLED)
Split = Literal["train", "test", "all"]
RunSplit = Annotated[Split, tyro.conf.arg(help="Which part of the run's data.")]
MovedData = Annotated[str | None, tyro.conf.arg(help="Where the run's images are now, if they have moved.")]
AnyDevice = Annotated[Device, tyro.conf.arg(help="Where to compute: auto takes a GPU if there is one.")]


def show_default(value: str) -> str:
    """What the help says after an option: nothing for flags, nor where the text explains the default."""
    return "" if value in ("None", "True", "False") else f"(default: {value})"


HINT = tyro.conf.arg(help_behavior_hint=show_default)


def parse(cls: type, command: str, argv: list[str]) -> Any:
    """The arguments of a command, the run found; tyro prints help and errors, and exits with 2."""
    for name, kind in get_type_hints(cls, include_extras=True).items():  # tyro has no switch for all hints
        cls.__annotations__[name] = Annotated[kind, HINT]
    config = (
        tyro.conf.OmitArgPrefixes,
        tyro.conf.HelptextFromCommentsOff,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.DisallowNone,
    )
    arguments: Any = tyro.cli(cls, prog=f"capspoe {command}", args=argv, config=config)
    run = getattr(arguments, "run", None)
    return arguments if run is None else dataclasses.replace(arguments, run=find_run(run))


def check_suffix(path: Path, *suffixes: str) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--out must end in {' or '.join(suffixes)}, not {path.name!r}")


def command_line(*words: object) -> str:
    """A command for people to copy, quoted."""
    return shlex.join(["capspoe", *map(str, words)])
