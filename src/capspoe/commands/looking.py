"""`capspoe reconstruct`, `traverse`, `routing`, `report`: pictures of a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from capspoe.commands.parsing import parse


def reconstruct(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Reconstruct:
        """Images, and what comes back through the autoencoder, their capsule and all capsules, with errors.

        Writes RUN/figures/reconstructions.png.
        """

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        count: int = 10
        """How many images."""
        first: int = 0
        """The number of the first one."""
        between: str | None = None
        """Two image numbers, as 3,18: also the way from the one to the other, if one capsule is on for both."""
        split: Literal["train", "test", "all"] = "test"
        """Which part of the run's own data."""

    a = parse(Reconstruct, "reconstruct", argv)
    from capspoe.figures import commands

    between = commands.parse_between(a.between)
    print(*commands.reconstruct_run(a.run, a.count, a.first, between, a.split), sep="\n")


def traverse(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Traverse:
        """Each number of a capsule swept over 2.5 standard deviations of its prior to either side.

        Writes RUN/figures/traverse-J.png.
        """

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        capsule: int | None = None
        """Only this capsule."""
        axes: Literal["neurons", "principal"] = "neurons"
        """Sweep the capsule's numbers, or the principal axes of its prior."""

    a = parse(Traverse, "traverse", argv)
    from capspoe.figures import commands

    print(*commands.traverse_run(a.run, a.capsule, a.axes), sep="\n")


def routing(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Routing:
        """How one image is routed, Figure 1 of the paper, and where the capsule that is on looks.

        Writes RUN/figures/routing-K.svg and heat-K.png.
        """

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        image: int = 0
        """The number of the image."""
        split: Literal["train", "test", "all"] = "test"
        """Which part of the run's own data."""

    a = parse(Routing, "routing", argv)
    from capspoe.figures import commands

    print(*commands.route_run(a.run, a.image, a.split), sep="\n")


def report(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Report:
        """One page about a run, RUN/report.html, that needs no other file; its figures are in RUN/figures too."""

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        image: int = 0
        """The number of the test image whose routing is shown."""

    a = parse(Report, "report", argv)
    from capspoe.report import write_report

    print(write_report(a.run, a.image))
