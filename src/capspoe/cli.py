"""The command line: parses and calls, nothing else. Heavy imports wait until a command has been understood."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from capspoe import __version__
from capspoe.errors import CapspoeError, InputError

SUMMARY = """capspoe: capsule networks trained without labels

usage: capspoe COMMAND ...          capspoe COMMAND --help tells more

  train DATA        train on mnist, fashion-mnist, cifar10, digits, a folder of images, an .npy or .npz
  sample RUN        new images from a trained run, as .png or .npz
  encode RUN        which capsule is on for each image, and its numbers, as .npz
  explore RUN       a local web page on which to play with the capsules
  data              list, fetch and verify data sets
  bench             how fast the kernels are on this machine

  --version         the version        --debug   show the traceback of an error"""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; exit with 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in argv
    argv = [a for a in argv if a != "--debug"]
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(SUMMARY)
        sys.exit(0 if argv else 2)
    if argv[0] == "--version":
        print(f"capspoe {__version__}")
        sys.exit(0)
    if argv[0] not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(argv[0], COMMANDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else "capspoe --help lists the commands"
        print(f"capspoe: there is no command {argv[0]!r}; {hint}", file=sys.stderr)
        sys.exit(2)
    try:
        COMMANDS[argv[0]](argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if debug:
            raise
        print(f"capspoe: {explain(error)}", file=sys.stderr)
        sys.exit(130 if type(error).__name__ == "Interrupted" else 1)


def explain(error: Exception) -> str:
    """One line for a person."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, CapspoeError):
        return text
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text.lower():
        return "out of memory; lower --batch or --channels, or use fewer images with --limit"
    return f"unexpected {type(error).__name__}: {text[:300]} (--debug shows where)"


def parse(cls: type, command: str, argv: list[str], default: Any = None) -> Any:
    """The arguments of a command; tyro prints its own help and errors, and exits with 2."""
    import tyro

    config = (tyro.conf.OmitArgPrefixes, tyro.conf.HelptextFromCommentsOff, tyro.conf.FlagCreatePairsOff)
    if default is None:
        return tyro.cli(cls, prog=f"capspoe {command}", args=argv, config=config)
    return tyro.cli(cls, prog=f"capspoe {command}", args=argv, config=config, default=default)


# train


def train(argv: list[str]) -> None:
    """Presets change the defaults that --help shows, so they are looked up before everything is parsed."""
    import tyro

    from capspoe.config import (
        AutoencoderConfig,
        CapsuleConfig,
        Config,
        DataConfig,
        TrainingConfig,
        check,
        preset,
    )

    @dataclass(frozen=True)
    class Train:
        """Train the autoencoder, then the capsules on its code, and leave a run folder.

        The same command again carries an unfinished run on.
        """

        data: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="DATA")]]
        """mnist, fashion-mnist, cifar10, digits, or a path: a folder of images, an .npy, an .npz"""
        preset: Literal["small", "paper"] = "small"
        """Sizes: small takes minutes on a laptop, paper is the paper's 576x8 -> 20x16."""
        literal: bool = False
        """Exactly what the paper says: no gate, binary neurons, no biases, no centring, no code noise."""
        out: Path | None = None
        """The run folder (default: runs/NAME)."""
        resume: bool = False
        """Carry on the run in --out with the settings that it has."""
        images: DataConfig = field(default_factory=DataConfig)
        autoencoder: AutoencoderConfig = field(default_factory=AutoencoderConfig)
        capsules: CapsuleConfig = field(default_factory=CapsuleConfig)
        training: TrainingConfig = field(default_factory=TrainingConfig)

    name, preset_name = _value_of(argv, None) or "mnist", _value_of(argv, "--preset") or "small"
    start = preset(preset_name if preset_name in ("small", "paper") else "small", name, "--literal" in argv,
                   _value_of(argv, "--neurons"))  # fmt: skip
    default = Train(
        data=tyro.MISSING,
        images=start.data,
        autoencoder=start.autoencoder,
        capsules=start.capsules,
        training=start.training,
    )
    a = parse(Train, "train", argv, default)
    config: Config = Config(a.images, a.autoencoder, a.capsules, a.training).replace(data=a.data)
    check(config)
    from capspoe import training

    training.command(config, a.out or training.default_folder(config, a.preset, a.literal), a.resume)


def _value_of(argv: list[str], option: str | None) -> str | None:
    """The value of an option, or the first positional argument, before the real parser has run."""
    for k, word in enumerate(argv):
        if option is None and not word.startswith("-") and (k == 0 or not argv[k - 1].startswith("--")):
            return word
        if option and word.startswith(option + "="):
            return word.split("=", 1)[1]
        if option and word == option and k + 1 < len(argv):
            return argv[k + 1]
    return None


# sample, encode


def sample(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Sample:
        """New images from a trained run: a column for each capsule in a .png, arrays in an .npz."""

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        out: Path
        """x.png, or x.npz with images (capsules, count, H, W, C) in [0, 1] and capsule (capsules,)."""
        count: int = 4
        """Images of each capsule."""
        capsule: int | None = None
        """Only this capsule."""
        prior: Literal["fitted", "standard"] | None = None
        """fitted: the distribution of the capsule's own images. standard: the paper's sigmoid(N(0, 1))."""
        gibbs: int = 0
        """Further steps of reverse pass, forward routing and sampling."""
        seed: int = 0
        """The same seed gives the same images."""

    a = parse(Sample, "sample", argv)
    check_suffix(a.out, ".png", ".npz")
    from capspoe import sampling
    from capspoe.model import CapsulePoE

    sampling.write_samples(CapsulePoE.load(a.run), a.out, a.count, a.capsule, a.prior, a.gibbs, a.seed)
    print(a.out)


def encode(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Encode:
        """Which capsule is on for each image, and its numbers: on (n, J), hidden (n, J, N), labels if known."""

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        out: Path
        """x.npz"""
        images: tyro.conf.Positional[str | None] = None
        """A data set, folder, .npy or .npz (default: the run's own data)."""
        split: Literal["train", "test", "all"] = "test"
        """Which part of it."""

    a = parse(Encode, "encode", argv)
    check_suffix(a.out, ".npz")
    from capspoe import encoding

    encoding.write_encoded(a.run, a.out, a.images, a.split)
    print(a.out)


def check_suffix(path: Path, *suffixes: str) -> None:
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--out must end in {' or '.join(suffixes)}, not {path.name!r}")


# explore


def explore(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Explore:
        """Open a local web page: move a capsule's numbers, draw a digit, watch the routing.

        It also follows a run that is still training. Ctrl-C stops it.
        """

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        port: int | None = None
        """The port (default: the first free one from 8765 on)."""
        no_browser: bool = False
        """Only say the address; do not open it."""
        host: str = "127.0.0.1"
        """The address to listen on. Any other than this machine's own lets others use the page."""

    a = parse(Explore, "explore", argv)
    from capspoe.explorer.server import serve

    serve(a.run, a.host, a.port, not a.no_browser)


# data


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


# bench


def bench(argv: list[str]) -> None:
    @dataclass(frozen=True)
    class Bench:
        """Time the CPU kernels against the plain reference, both sides in one run, and print the ratios."""

        rounds: int = 9
        """How often each side is timed; the best counts."""
        out: Path | None = None
        """Also write the numbers to this .json file."""

    a = parse(Bench, "bench", argv)
    if a.rounds < 1:
        raise InputError(f"rounds must be 1 or more, not {a.rounds}")
    if a.out:
        check_suffix(a.out, ".json")
    from capspoe import bench as measurements

    measurements.command(a.rounds, a.out)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train,
    "sample": sample,
    "encode": encode,
    "explore": explore,
    "data": data,
    "bench": bench,
}

if __name__ == "__main__":
    main()
