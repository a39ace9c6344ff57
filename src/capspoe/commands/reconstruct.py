"""`capspoe reconstruct`."""

from dataclasses import dataclass

from capspoe.commands.arguments import MovedData, RunFolder, RunSplit, parse


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
    split: RunSplit = "test"
    data: MovedData = None


def reconstruct(argv: list[str]) -> None:
    a = parse(Reconstruct, "reconstruct", argv)
    import numpy as np

    from capspoe.core.checks import check_count
    from capspoe.data import open_for
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
    path = output_folder(a.run) / "figures" / "reconstructions.png"
    write(draw_reconstructions(found, a.count), path)
    print(path)
