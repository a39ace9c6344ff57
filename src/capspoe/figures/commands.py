"""What the commands do: open a run and its images, and write the figures into RUN/figures."""

from pathlib import Path

import numpy as np

from capspoe.encoding import open_for
from capspoe.errors import InputError
from capspoe.figures.diagram import routing_diagram
from capspoe.figures.gallery import label_of
from capspoe.figures.heat import write_heat
from capspoe.figures.interpolation import interpolate, write_interpolations
from capspoe.figures.reconstruction import reconstructions, write_reconstructions
from capspoe.figures.routing import one_image, routed
from capspoe.figures.svg import write_svg
from capspoe.figures.traversal import Axes, traverse, write_traversal
from capspoe.model import CapsulePoE, check_capsule
from capspoe.validate import check_count


def reconstruct_run(
    run: Path, count: int = 10, first: int = 0, between: tuple[int, int] | None = None, split: str = "test"
) -> list[Path]:
    """Reconstructions of `count` images from number `first` on, and the way between two images if asked for."""
    model = CapsulePoE.load(run)
    check_count("count", count)
    source = open_for(model, None, split)
    one_image(source, first, split)
    found = reconstructions(model, source.batch(np.arange(first, min(first + count, len(source)))))
    written = [run / "figures" / "reconstructions.png"]
    if between:
        first_end, second_end = (one_image(source, k, split) for k in between)
        way = interpolate(model, first_end, second_end)
        written.append(run / "figures" / f"interpolation-{between[0]}-{between[1]}.png")
        write_interpolations([way], written[1])
    write_reconstructions(found, written[0])
    return written


def traverse_run(run: Path, capsule: int | None = None, axes: Axes = "neurons") -> list[Path]:
    """The traversal of a capsule, or of each."""
    model = CapsulePoE.load(run)
    if capsule is not None:
        check_capsule("capsule", capsule, model.top.upper[0])
    written = []
    for j in range(model.top.upper[0]) if capsule is None else [capsule]:
        suffix = "" if axes == "neurons" else "-principal"
        written.append(run / "figures" / f"traverse-{j}{suffix}.png")
        write_traversal(traverse(model, j, axes), written[-1])
    return written


def route_run(run: Path, image: int = 0, split: str = "test") -> list[Path]:
    """The routing diagram of an image, and where its capsule looks."""
    model = CapsulePoE.load(run)
    source = open_for(model, None, split)
    view = routed(model, one_image(source, image, split))
    name = f"{split} image {image}"
    written = [run / "figures" / f"routing-{image}.svg", run / "figures" / f"heat-{image}.png"]
    write_svg(routing_diagram(view, name, label_of(source, image)), written[0])
    write_heat(model, view, written[1], name)
    return written


def parse_between(text: str | None) -> tuple[int, int] | None:
    """'3,18' to (3, 18)."""
    if text is None:
        return None
    try:
        first, second = (int(word) for word in text.split(","))
    except ValueError:
        raise InputError(f"--between must be two image numbers such as 3,18, not {text!r}") from None
    return first, second
