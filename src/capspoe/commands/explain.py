"""`capspoe explain`."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from capspoe.commands.arguments import ImagePath, RunFolder, check_suffix, command, figure_path
from capspoe.config import Compose

if TYPE_CHECKING:
    import numpy as np

    from capspoe.run.model import CapsulePoE


@command
def explain(
    run: RunFolder,
    image: ImagePath,
    objects: int | None = None,
    compose: Compose = "maximum",
    shift: float = 0.0,
    count: int = 10,
    out: Path | None = None,
) -> None:
    """Pull apart objects that overlap in an image.

    Finds which capsules explain the image, what each object looks like alone, and which object each pixel belongs to.

    Args:
        objects: Number of objects in an image (default: estimated for each image, up to 3).
        compose: How objects overlap: strokes, light, or opaque with the first in front.
        shift: How many pixels objects may be off their usual place, such as 2 for digits that are not centred.
        count: Number of images, if there are many.
        out: x.png, or x.npz with all arrays (default: RUN/figures/explain.png).
    """
    out = out or figure_path(run, "explain.png")
    check_suffix(out, ".png", ".npz")
    from capspoe.figures.explanation import draw_explanation
    from capspoe.figures.sheet import write
    from capspoe.infer.polarity import Polarity
    from capspoe.model.checks import check_count
    from capspoe.run.model import CapsulePoE

    check_count("count", count)
    model = CapsulePoE.load(run)
    images = model.array(model.tensor(open_images(model, image, count)))
    explanation = model.explain(images, objects, compose, shift)
    for row, (capsules, probabilities) in enumerate(zip(explanation.capsule, explanation.probability, strict=True)):
        parts = []
        for capsule, probability in zip(capsules, probabilities, strict=True):
            if capsule >= 0:
                parts.append(f"capsule {capsule} ({probability:.0%})")
        print(f"image {row}: {', '.join(parts)}")
    if out.suffix.lower() == ".npz":
        write_arrays(explanation, out)
    else:
        polarity = Polarity.of_network(model)
        write(draw_explanation(polarity.ink(images), explanation.ink(polarity)), out)
    print(out)


def write_arrays(arrays: NamedTuple, path: Path) -> None:
    """Write every field of a result as an array of its name."""
    from capspoe.atomic import npz_writer

    with npz_writer(path) as file:
        for name, values in arrays._asdict().items():
            file.add(name, values)


def open_images(model: "CapsulePoE", name: str, count: int) -> "np.ndarray":
    """At most `count` images by name or path; a picture takes the polarity of the network."""
    import numpy as np

    from capspoe.data import FolderDataset, Prepare, open_for
    from capspoe.infer.polarity import Polarity

    path = Path(name).expanduser()
    height, width, colours = model.image
    if not path.is_file() or path.suffix.lower() in (".npy", ".npz"):
        dataset = open_for(model.config, model.image, name, "all")
        return dataset.batch(np.arange(min(count, len(dataset))))
    prepare = Prepare.of((height, width), None, {1: "grey", 3: "rgb"}.get(colours))
    pixels = FolderDataset(path.absolute().parent, [path.name], prepare).batch(np.arange(1))
    return Polarity.of_network(model).match(pixels)
