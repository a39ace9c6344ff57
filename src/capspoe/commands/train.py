"""`capspoe train`."""

import argparse
import dataclasses
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
    found, _ = scanner.parse_known_args(argv)
    data = found.data or "mnist"
    while (a := parsed(argv, data, found.preset, found.neurons)).data != data:
        data = a.data
    config = Config(data=data, **vars(a.basic), **vars(a.advanced))
    check(config)
    from capspoe import distributed
    from capspoe.run.train import default_folder, train_run

    folder = a.out or default_folder(config, a.preset, a.literal)
    with distributed.process_group():
        model, seconds, was_done = train_run(config, folder, a.resume)
        if not distributed.is_main():
            return
    print(f"{folder} was finished already" if was_done else f"trained in {seconds / 60:.1f} minutes")
    print(f"  samples   {folder / 'samples.png'}  (4 images of each of the {model.top.upper[0]} capsules)")
    print(f"  metrics   {folder / 'metrics.jsonl'}")
    print(f"  next      {command_line('sample', folder, '--count', 100, '--out', 'samples.npz')}")


def parsed(argv: list[str], data: str, name: str | None, neurons: str | None) -> Any:
    """The arguments, with the defaults of the preset and the data set."""
    start = preset(name if name in PRESETS else "small", data, "--literal" in argv, neurons)
    Basic, Advanced = group("Basic", start, advanced=False), group("Advanced", start, advanced=True)

    @dataclasses.dataclass(frozen=True)
    class Train:
        """Train the autoencoder, then the capsules on its codes, and write a run folder.

        Run the same command again to resume an unfinished run.
        """

        data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]]
        """mnist, fashion-mnist, cifar10, digits, or the path of an image folder, .npy or .npz"""
        preset: Literal["small", "paper"] = "small"
        """small takes minutes on a laptop; paper has the paper's 576x8 -> 20x16 capsules."""
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
    kinds, fields = get_type_hints(Config), []
    for name, field in FIELDS.items():
        if field.metadata["advanced"] == advanced and name != "data":
            default: Any = getattr(start, name)
            text = tyro.conf.arg(help=field.metadata["no_help" if default is True else "help"])
            fields.append((name, Annotated[kinds[name], text, HINT], dataclasses.field(default=default)))
    return dataclasses.make_dataclass(title, fields, frozen=True)
