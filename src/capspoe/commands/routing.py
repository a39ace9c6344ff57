"""`capspoe routing`."""

from pathlib import Path

from capspoe.commands.arguments import Images, RunFolder, SplitOf, check_suffix, command, figure_path
from capspoe.commands.images import open_given_images, reconstruction_errors


@command
def routing(
    run: RunFolder, images: Images = (), image: int = 0, split: SplitOf = None, out: Path | None = None
) -> None:
    """Draw how one image is routed, Figure 1 of the paper.

    Args:
        image: Index of the image, if there are several.
        out: x.svg (default: RUN/figures/routing-K.svg).
    """
    out = out or figure_path(run, f"routing-{image}.svg")
    check_suffix(out, ".svg")
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
    write(draw_routing(view, title, label_of(given.dataset, image)), out)
    print(out)
