"""`capspoe routing`."""

from capspoe.commands.arguments import (
    MovedData,
    RunFolder,
    RunSplit,
    command,
    figure_path,
    open_for_run,
)


@command
def routing(run: RunFolder, image: int = 0, split: RunSplit = "test", data: MovedData = None) -> None:
    """Draw how one image is routed, Figure 1 of the paper. Writes RUN/figures/routing-K.svg.

    Args:
        image: Index of the image.
    """
    from capspoe.figures.gallery import label_of
    from capspoe.figures.routing import draw_routing, one_image, routed
    from capspoe.figures.sheet import write
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run)
    dataset = open_for_run(model, run, data, split)
    view = routed(model, one_image(dataset, image, split))
    path = figure_path(run, f"routing-{image}.svg")
    write(draw_routing(view, f"{split} image {image}", label_of(dataset, image)), path)
    print(path)
