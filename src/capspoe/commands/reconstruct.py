"""`capspoe reconstruct`."""

from pathlib import Path

from capspoe.commands.arguments import Images, RunFolder, SkipBad, SplitOf, check_suffix, command, figure_path
from capspoe.commands.images import open_given_images, reconstruction_errors


@command
def reconstruct(
    run: RunFolder,
    images: Images = (),
    count: int = 10,
    first: int = 0,
    split: SplitOf = None,
    skip_bad: SkipBad = False,
    out: Path | None = None,
) -> None:
    """Draw images and their reconstructions: by the autoencoder, by the winning capsule and by all capsules.

    Args:
        count: Number of images.
        first: Index of the first image.
        out: x.png (default: RUN/figures/reconstructions.png).
    """
    out = out or figure_path(run, "reconstructions.png")
    check_suffix(out, ".png")
    import numpy as np

    from capspoe.figures.reconstruction import draw_reconstructions, reconstructions
    from capspoe.figures.routing import check_number
    from capspoe.figures.sheet import write
    from capspoe.model.checks import check_count
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run)
    check_count("count", count)
    given = open_given_images(model, run, images, split, skip_bad=skip_bad)
    check_number(given.dataset, first)
    end = min(first + count, len(given.dataset))
    pixels = given.dataset.batch(np.arange(first, end))
    given.note_errors(first, reconstruction_errors(model, pixels))
    given.announce()
    write(draw_reconstructions(reconstructions(model, pixels), count), out)
    print(out)
