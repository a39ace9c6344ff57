"""Parsing that the commands share.

A command imports NumPy, PyTorch and whatever needs them inside its function. So help and wrong
usage, which tyro answers before the function runs, take a fraction of a second.
"""

import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import tyro
from tyro.conf import Positional, arg

from capspoe.commands.usage import one_line_errors
from capspoe.config import Device
from capspoe.errors import InputError
from capspoe.run.bundled import BUNDLED, find_run, output_folder

if TYPE_CHECKING:
    from capspoe.data import Dataset, Prepare
    from capspoe.run.model import CapsulePoE

Part = TypeVar("Part")
RUN_HELP = "The run folder, or mnist-small, which ships with the package."
RunFolder = Positional[Annotated[Path, arg(metavar="RUN", help=RUN_HELP)]]
DEFAULT_RUN = Path(BUNDLED)
Split = Literal["train", "test", "all"]
RunSplit = Annotated[Split, arg(help="Which part of the run's data.")]
MovedData = Annotated[str | None, arg(help="Where the run's images are now, if they have moved.")]
IMAGES_HELP = "Image files, folders, .npy, .npz, a data set, or - for standard input"
Images = Annotated[
    Positional[tuple[str, ...]], arg(metavar="[IMAGES ...]", help=f"{IMAGES_HELP} (default: the run's own data).")
]
AsJson = Annotated[bool, arg(help="Print JSON instead of text.")]
SkipBad = Annotated[bool, arg(help="Skip image files that cannot be read instead of stopping.")]
SplitOf = Annotated[
    Split | None, arg(help="Which part of it (default: all of a path that you name, otherwise test).")
]
AnyDevice = Annotated[Device, arg(help="Where to compute: auto takes a GPU if there is one.")]


def _default_hint(value: str) -> str:
    """The default in the help: none for flags, nor where the text explains it."""
    if value in ("None", "True", "False", ""):
        return ""
    return f"(default: {value})"


HINT = arg(help_behavior_hint=_default_hint)


def command(function: Callable[..., None]) -> Callable[[list[str]], None]:
    """Make a function a command: tyro derives the arguments from its signature and docstring."""

    @wraps(function)
    def collect(**arguments: Any) -> dict[str, Any]:
        return arguments

    @wraps(function)
    def call(argv: list[str]) -> None:
        arguments = parse(collect, function.__name__, argv)
        if arguments.get("run"):
            arguments["run"] = find_run(arguments["run"])
        function(**arguments)

    return call


def parse(target: Callable[..., Any], name: str, argv: list[str]) -> Any:
    """Call a function or dataclass with the arguments of a command.

    Prints help or what is wrong with the usage, and then exits with 0 or 2.
    """
    # tyro has no switch for the hints of all arguments.
    for argument, kind in get_type_hints(target, include_extras=True).items():
        target.__annotations__[argument] = Annotated[kind, HINT]
    config = (
        tyro.conf.OmitArgPrefixes,
        tyro.conf.HelptextFromCommentsOff,
        tyro.conf.FlagCreatePairsOff,
        tyro.conf.DisallowNone,
    )
    prog = f"capspoe {name}"
    with one_line_errors(prog):
        return tyro.cli(target, prog=prog, args=argv, config=config)


def check_suffix(path: Path, *suffixes: str) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--out must end in {' or '.join(suffixes)}, not {path.name!r}")
    if path.suffix.lower() == ".parquet" and find_spec("pyarrow") is None:
        advice = "pip install 'capspoe[parquet]', or write x.csv"
        raise InputError(f"--out x.parquet needs the package pyarrow: {advice}")


def figure_path(run: Path, name: str) -> Path:
    """The path of a figure of a run."""
    return output_folder(run) / "figures" / name


def open_for_run(
    model: "CapsulePoE",
    run: Path,
    images: str | Sequence[str] | None,
    split: str | None,
    prepare: "Prepare | None" = None,
) -> "Dataset":
    """The run's own images or others, as the network expects them; see `capspoe.data.open_for`."""
    from capspoe.data import CATALOGUE, open_for

    names = [images] if isinstance(images, str) else list(images or ())
    if not split:
        has_test_split = all(name in CATALOGUE for name in names)
        split = "test" if has_test_split else "all"
    return open_for(model.config, model.image, names, split, run=run, prepare=prepare)


def progress(parts: Iterable[Part], total: int, title: str) -> Iterable[Part]:
    """The parts, with a progress bar on a terminal."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(parts, title, total, console=console, transient=True, disable=not console.is_terminal)


def print_json(value: Any) -> None:
    """Print JSON, one line for each item of a list; NaN becomes null."""
    import json
    import math

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {str(key): clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [clean(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    if not isinstance(value, list):
        print(json.dumps(clean(value)))
        return
    lines = ",\n ".join(json.dumps(clean(item)) for item in value)
    print(f"[{lines}]")


def records_of(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """The rows of a table of columns."""
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def command_line(*words: object) -> str:
    """A command as people can copy it, quoted."""
    return shlex.join(["capspoe", *map(str, words)])
