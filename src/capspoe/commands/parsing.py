"""What the commands share in reading their arguments."""

from pathlib import Path
from typing import Any

from capspoe.errors import InputError


def parse(cls: type, command: str, argv: list[str], default: Any = None) -> Any:
    """The arguments of a command; tyro prints its own help and errors, and exits with 2."""
    import tyro

    config = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff, tyro.conf.FlagCreatePairsOff)
    if default is None:
        return tyro.cli(cls, prog=f"capspoe {command}", args=argv, config=config)
    return tyro.cli(cls, prog=f"capspoe {command}", args=argv, config=config, default=default)


def check_suffix(path: Path, *suffixes: str) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--out must end in {' or '.join(suffixes)}, not {path.name!r}")
