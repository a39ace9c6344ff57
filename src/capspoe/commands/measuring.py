"""`capspoe evaluate`, `bench`: numbers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from capspoe.commands.parsing import check_suffix, parse
from capspoe.errors import InputError


def evaluate(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Evaluate:
        """Score a trained run beside baselines on the same data; RUN/evaluation.json and a table.

        What was computed before is not computed again.
        """

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        quick: bool = False
        """Minutes: fewer samples, and only the baselines that are trained in seconds."""
        samples: int | None = None
        """Images that each model draws (default: 2000, or 1000 with --quick). FIDs compare only among equals."""
        seed: int = 0
        """Seed of the samples."""
        ablate: bool = False
        """Also the run with each of its ingredients switched off, one at a time."""

    a = parse(Evaluate, "evaluate", argv)
    from capspoe.evaluate import run

    run.command(a.run, a.quick, a.samples, a.seed, a.ablate)


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
