"""`capspoe train`."""

import argparse
import dataclasses
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from capspoe.commands.arguments import HINT, command_line, parse
from capspoe.config import FIELDS, PRESETS, Config, check, preset


def train(argv: list[str]) -> None:
    # Presets and data sets change the defaults that --help shows, so they are read before the real parser runs.
    scanner = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for word in ("data", "--preset", "--neurons"):
        scanner.add_argument(word, nargs="?")
    refuse_unknown_options(argv)
    scanned, _ = scanner.parse_known_args(argv)
    data = scanned.data or "mnist"
    arguments = parsed(argv, data, scanned.preset, scanned.neurons)
    # The scanner takes the value of a flag that it does not know for the data set; tyro knows better.
    while arguments.data != data:
        data = arguments.data
        arguments = parsed(argv, data, scanned.preset, scanned.neurons)
    config = Config(data=data, **vars(arguments.basic), **vars(arguments.advanced))
    check(config)
    from capspoe import distributed
    from capspoe.data import join_names
    from capspoe.run.train import default_folder, train_run

    config = config.replace(data=join_names([data, *arguments.more]))

    folder = arguments.out or default_folder(config, arguments.preset, arguments.literal)
    with distributed.process_group():
        model, seconds, was_done = train_run(config, folder, arguments.resume)
        if not distributed.is_main():
            return
    if was_done:
        print(f"{folder} was finished already")
    else:
        print(f"trained in {seconds / 60:.1f} minutes")
    capsules = model.top.upper[0]
    print(f"  samples   {folder / 'samples.png'}  (4 images of each of the {capsules} capsules)")
    print(f"  metrics   {folder / 'metrics.jsonl'}")
    print(f"  next      {command_line('sample', folder, '--count', 100, '--out', 'samples.npz')}")


def refuse_unknown_options(argv: list[str]) -> None:
    """Name an option that does not exist: without a data set, tyro would only say that one is missing."""
    known = {"help", "preset", "literal", "out", "resume"}
    for name, kind in get_type_hints(Config).items():
        known |= {name, f"no_{name}"} if kind is bool else {name}
    for word in argv:
        name = word.removeprefix("--").partition("=")[0].replace("-", "_")
        if word.startswith("--") and name not in known - {"data"}:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean --{near[0].replace('_', '-')}?" if near else "capspoe train --help lists them"
            print(f"capspoe train: there is no option {word.partition('=')[0]}; {hint}", file=sys.stderr)
            sys.exit(2)


def parsed(argv: list[str], data: str, name: str | None, neurons: str | None) -> Any:
    """The arguments, with the defaults of the preset and the data set."""
    if name not in PRESETS:  # not given, or wrong, which tyro reports
        name = "small"
    start = preset(name, data, "--literal" in argv, neurons)
    Basic = group("Basic", start, advanced=False)
    Advanced = group("Advanced", start, advanced=True)

    @dataclasses.dataclass(frozen=True)
    class Train:
        """Train the autoencoder, then the capsules on its codes, and write a run folder.

        Run the same command again to resume an unfinished run.
        """

        data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]]
        """mnist, fashion-mnist, cifar10, digits, a folder of images, an .npy, an .npz, image files, or - for standard
        input"""
        more: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="[DATA ...]")]] = ()
        """More of them; all images become one data set without labels."""
        preset: Literal["small", "paper", "photos"] = "small"
        """small takes minutes on a laptop; paper has the paper's 576x8 -> 20x16 capsules; photos keeps the shades of
        your own photographs."""
        literal: bool = False
        """Do exactly what the paper says: no gate, binary neurons, no biases, no centring, no code noise."""
        out: Path | None = None
        """The run folder (default: runs/NAME)."""
        resume: bool = False
        """Resume the run in --out with its own settings."""
        basic: Basic = dataclasses.field(default_factory=Basic)  # type: ignore[valid-type]
        advanced: Advanced = dataclasses.field(default_factory=Advanced)  # type: ignore[valid-type]

    return parse(Train, "train", argv)


def group(title: str, start: Config, advanced: bool) -> type:
    """The basic or the advanced settings as a dataclass for the parser."""
    kinds = get_type_hints(Config)
    fields: list[Any] = []
    for name, field in FIELDS.items():
        if field.metadata["advanced"] != advanced or name == "data":
            continue
        default: Any = getattr(start, name)
        # A switch that is on by default appears as --no-NAME.
        help_key = "no_help" if default is True else "help"
        text = tyro.conf.arg(help=field.metadata[help_key])
        default_field = dataclasses.field(default=default)
        fields.append((name, Annotated[kinds[name], text, HINT], default_field))
    return dataclasses.make_dataclass(title, fields, frozen=True)
