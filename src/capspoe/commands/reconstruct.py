"""`capspoe reconstruct`."""

from capspoe.commands.arguments import (
    MovedData,
    RunFolder,
    RunSplit,
    command,
    figure_path,
    open_for_run,
)


@command
def reconstruct(
    run: RunFolder, count: int = 10, first: int = 0, split: RunSplit = "test", data: MovedData = None
) -> None:
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
    dataset = open_for_run(model, run, data, split)
    one_image(dataset, first, split)  # refuses a number that is not there
    end = min(first + count, len(dataset))
    rows = reconstructions(model, dataset.batch(np.arange(first, end)))
    path = figure_path(run, "reconstructions.png")
    write(draw_reconstructions(rows, count), path)
    print(path)
