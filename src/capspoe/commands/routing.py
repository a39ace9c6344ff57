"""`capspoe routing`."""

from dataclasses import dataclass
from typing import Literal

from capspoe.commands.arguments import RunFolder, parse


@dataclass(frozen=True)
class Routing:
    """Draw how one image is routed, Figure 1 of the paper, and the routing weights of its capsule over the image.

    Writes RUN/figures/routing-K.svg and heat-K.png.
    """

    run: RunFolder
    image: int = 0
    """Number of the image."""
    split: Literal["train", "test", "all"] = "test"
    """Which part of the run's data."""
    data: str | None = None
    """Where the run's images are now, if they have moved."""


def routing(argv: list[str]) -> None:
    a = parse(Routing, "routing", argv)
    from capspoe.data import open_for
    from capspoe.figures.gallery import label_of
    from capspoe.figures.heat import draw_heat, heat
    from capspoe.figures.routing import draw_routing, one_image, routed
    from capspoe.figures.sheet import write
    from capspoe.run.bundled import output_folder
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(a.run)
    dataset = open_for(model.config, model.image, a.data, a.split, run=a.run)
    view = routed(model, one_image(dataset, a.image, a.split))
    name, folder = f"{a.split} image {a.image}", output_folder(a.run) / "figures"
    written = [folder / f"routing-{a.image}.svg", folder / f"heat-{a.image}.png"]
    write(draw_routing(view, name, label_of(dataset, a.image)), written[0])
    write(draw_heat(heat(model, view), f"Routing weights of capsule {view.winner} in {name}"), written[1])
    print(*written, sep="\n")
