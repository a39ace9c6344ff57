"""`capspoe sample`, `encode`, `explore`: what a trained run is for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from capspoe.commands.parsing import check_suffix, parse


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
        """Further steps of sampling, reverse pass and forward routing."""
        spread: float | None = None
        """Factor on the spread of the fitted prior: more gives variety, less typical images (default: the run's)."""
        seed: int = 0
        """The same seed gives the same images."""

    a = parse(Sample, "sample", argv)
    check_suffix(a.out, ".png", ".npz")
    from capspoe import sampling
    from capspoe.model import CapsulePoE

    model = CapsulePoE.load(a.run)
    sampling.write_samples(model, a.out, a.count, a.capsule, a.prior, a.gibbs, a.seed, a.spread)
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

    if encoding.write_encoded(a.run, a.out, a.images, a.split):
        print(a.out)


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
