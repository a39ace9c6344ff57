"""`capspoe explain`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from capspoe.commands.arguments import (
    AsJson,
    Images,
    RunFolder,
    SkipBad,
    check_suffix,
    command,
    figure_path,
    print_json,
    progress,
)
from capspoe.commands.images import Given, edge_errors, name_capsule, open_given_images
from capspoe.config import Compose

if TYPE_CHECKING:
    from capspoe.infer.explain import Explanation

SHIFT = 2.0  # that of the explorer, `capspoe.run.model.SHIFT`, which needs PyTorch to be imported
CHUNK = 8  # images explained between two steps of the progress bar


@command
def explain(
    run: RunFolder,
    images: Images = (),
    objects: int | None = None,
    compose: Compose = "maximum",
    shift: float = SHIFT,
    count: int = 10,
    skip_bad: SkipBad = False,
    json: AsJson = False,
    out: Path | None = None,
) -> None:
    """Pull apart objects that overlap in an image.

    Finds which capsules explain the image, what each object looks like alone, and which object each pixel belongs to.

    Args:
        objects: Number of objects in an image (default: estimated for each image, up to 3).
        compose: How objects overlap: strokes, light, or opaque with the first in front.
        shift: How many pixels objects may be off their usual place.
        count: Number of images, if there are many.
        out: x.png, or x.npz with all arrays (default: RUN/figures/explain.png).
    """
    out = out or figure_path(run, "explain.png")
    check_suffix(out, ".png", ".npz")
    import numpy as np

    from capspoe.figures.explanation import draw_explanation
    from capspoe.figures.sheet import write
    from capspoe.infer.explain import Explanation
    from capspoe.infer.polarity import Polarity
    from capspoe.model.checks import check_count
    from capspoe.run.model import CapsulePoE

    check_count("count", count)
    model = CapsulePoE.load(run)
    given = open_given_images(model, run, images, limit=count, skip_bad=skip_bad)
    # Only when all are read is it known whether they were fitted to the frame.
    batches = list(given.dataset.batches(CHUNK))
    fitted = given.mostly_fitted()
    pictures = []
    parts = []
    for pixels in progress(batches, len(batches), "explaining"):
        pictures.append(model.array(model.tensor(pixels)))
        parts.append(model.explain(pixels, objects, compose, shift, fitted))
    shown = np.concatenate(pictures)
    explanation = Explanation.concatenate(parts)
    rows = describe(given, explanation, shown)
    given.announce()
    if json:
        print_json(rows)
    else:
        for row in rows:
            parts_of_image = []
            for item in row["objects"]:
                name = name_capsule(given, item["capsule"])
                parts_of_image.append(f"{name}, {item['probability']:.0%}")
            print(f"{row['image']}: {'; '.join(parts_of_image)}")
    if out.suffix.lower() == ".npz":
        write_arrays(explanation, out)
    else:
        polarity = Polarity.of_network(model)
        write(draw_explanation(polarity.ink(shown), explanation.ink(polarity)), out)
    if not json:
        print(out)


def describe(given: Given, explanation: "Explanation", images: Any) -> list[dict[str, Any]]:
    """The objects of each image as plain values; notes images that they do not explain."""
    import numpy as np

    names = given.dataset.names(np.arange(len(images)))
    errors = np.square(explanation.image - images).mean((1, 2, 3))
    edges = edge_errors(images, explanation.image)
    rows = []
    for k, name in enumerate(names):
        objects = []
        for capsule, probability in zip(explanation.capsule[k], explanation.probability[k], strict=True):
            if capsule >= 0:
                label = given.label(int(capsule))
                objects.append(
                    {"capsule": int(capsule), "mostly": label, "probability": round(float(probability), 4)}
                )
        (unlike,) = given.note_errors(k, errors[k : k + 1], edges[k : k + 1])
        rows.append({"image": name, "objects": objects, "error": float(errors[k]), "unlike": unlike})
    return rows


def write_arrays(arrays: NamedTuple, path: Path) -> None:
    """Write every field of a result as an array of its name."""
    from capspoe.atomic import npz_writer

    with npz_writer(path) as file:
        for name, values in arrays._asdict().items():
            file.add(name, values)
