"""`capspoe routing`."""

from dataclasses import dataclass

from capspoe.commands.arguments import MovedData, RunFolder, RunSplit, parse


@dataclass(frozen=True)
class Routing:
    """Draw how one image is routed, Figure 1 of the paper. Writes RUN/figures/routing-K.svg."""

    run: RunFolder
    image: int = 0
    """Number of the image."""
    split: RunSplit = "test"
    data: MovedData = None


def routing(argv: list[str]) -> None:
    a = parse(Routing, "routing", argv)
    from capspoe.data import open_for
    from capspoe.figures.gallery import label_of
    from capspoe.figures.routing import draw_routing, one_image, routed
    from capspoe.figures.sheet import write
    from capspoe.run.bundled import output_folder
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(a.run)
    dataset = open_for(model.config, model.image, a.data, a.split, run=a.run)
    view = routed(model, one_image(dataset, a.image, a.split))
    path = output_folder(a.run) / "figures" / f"routing-{a.image}.svg"
    write(draw_routing(view, f"{a.split} image {a.image}", label_of(dataset, a.image)), path)
    print(path)
