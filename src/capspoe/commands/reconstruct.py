"""`capspoe reconstruct`."""

from capspoe.commands.arguments import Images, RunFolder, SplitOf, command, figure_path
from capspoe.commands.images import open_given_images, reconstruction_errors


@command
def reconstruct(run: RunFolder, images: Images = (), count: int = 10, first: int = 0, split: SplitOf = None) -> None:
    """Draw images and their reconstructions: by the autoencoder, by the winning capsule and by all capsules.

    Writes RUN/figures/reconstructions.png.

    Args:
        count: Number of images.
        first: Index of the first image.
    """
    import numpy as np

    from capspoe.figures.reconstruction import draw_reconstructions, reconstructions
    from capspoe.figures.routing import one_image
    from capspoe.figures.sheet import write
    from capspoe.model.checks import check_count
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run)
    check_count("count", count)
    given = open_given_images(model, run, images, split)
    one_image(given.dataset, first)  # refuses a number that is not there
    end = min(first + count, len(given.dataset))
    pixels = given.dataset.batch(np.arange(first, end))
    given.note_errors(first, reconstruction_errors(model, pixels))
    given.announce()
    path = figure_path(run, "reconstructions.png")
    write(draw_reconstructions(reconstructions(model, pixels), count), path)
    print(path)
