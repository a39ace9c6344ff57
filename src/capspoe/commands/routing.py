"""`capspoe routing`."""

from capspoe.commands.arguments import Images, RunFolder, SplitOf, command, figure_path
from capspoe.commands.images import open_given_images, reconstruction_errors


@command
def routing(run: RunFolder, images: Images = (), image: int = 0, split: SplitOf = None) -> None:
    """Draw how one image is routed, Figure 1 of the paper. Writes RUN/figures/routing-K.svg.

    Args:
        image: Index of the image, if there are several.
    """
    from capspoe.figures.gallery import label_of
    from capspoe.figures.routing import draw_routing, one_image, routed
    from capspoe.figures.sheet import write
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run)
    given = open_given_images(model, run, images, split)
    pixels = one_image(given.dataset, image)
    view = routed(model, pixels)
    given.note_errors(image, reconstruction_errors(model, pixels))
    given.announce()
    (name,) = given.dataset.names([image])
    title = name if given.dataset.file_names else f"{given.dataset.what.removesuffix('s')} {image}"
    path = figure_path(run, f"routing-{image}.svg")
    write(draw_routing(view, title, label_of(given.dataset, image)), path)
    print(path)
