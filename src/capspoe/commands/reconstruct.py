"""`capspoe reconstruct`."""

from dataclasses import dataclass
from typing import Literal

from capspoe.commands.arguments import RunFolder, parse
from capspoe.errors import InputError


@dataclass(frozen=True)
class Reconstruct:
    """Draw images and their reconstructions by the autoencoder, their capsule and all capsules, with errors.

    Writes RUN/figures/reconstructions.png.
    """

    run: RunFolder
    count: int = 10
    """Number of images."""
    first: int = 0
    """Number of the first one."""
    between: str | None = None
    """Two image numbers, such as 3,18: also interpolate between them, if one capsule is on for both."""
    split: Literal["train", "test", "all"] = "test"
    """Which part of the run's data."""
    data: str | None = None
    """Where the run's images are now, if they have moved."""


def reconstruct(argv: list[str]) -> None:
    a = parse(Reconstruct, "reconstruct", argv)
    between = parse_between(a.between)
    import numpy as np

    from capspoe.core.checks import check_count
    from capspoe.data import open_for
    from capspoe.figures.interpolation import draw_interpolations, interpolate
    from capspoe.figures.reconstruction import draw_reconstructions, reconstructions
    from capspoe.figures.routing import one_image
    from capspoe.figures.sheet import write
    from capspoe.run.bundled import output_folder
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(a.run)
    check_count("count", a.count)
    dataset = open_for(model.config, model.image, a.data, a.split, run=a.run)
    one_image(dataset, a.first, a.split)
    found = reconstructions(model, dataset.batch(np.arange(a.first, min(a.first + a.count, len(dataset)))))
    written = [output_folder(a.run) / "figures" / "reconstructions.png"]
    if between:
        first, second = (one_image(dataset, k, a.split) for k in between)
        written.append(output_folder(a.run) / "figures" / f"interpolation-{between[0]}-{between[1]}.png")
        write(draw_interpolations([interpolate(model, first, second)]), written[1])
    write(draw_reconstructions(found, a.count), written[0])
    print(*written, sep="\n")


def parse_between(text: str | None) -> tuple[int, int] | None:
    """'3,18' to (3, 18)."""
    if text is None:
        return None
    try:
        first, second = (int(word) for word in text.split(","))
    except ValueError:
        raise InputError(f"--between must be two image numbers such as 3,18, not {text!r}") from None
    return first, second
