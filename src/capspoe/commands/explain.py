"""`capspoe explain`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from capspoe.commands.arguments import RunFolder, check_suffix, parse
from capspoe.run.bundled import output_folder

if TYPE_CHECKING:
    import numpy as np

    from capspoe.run.model import CapsulePoE


@dataclass(frozen=True)
class Explain:
    """Pull apart objects that overlap in an image: which capsules, each object alone, and whose each pixel is."""

    run: RunFolder
    image: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="IMAGE")]
    """An image file, a folder, an .npy or .npz."""
    objects: int | None = None
    """Number of objects in an image (default: found for each image, up to 3)."""
    compose: Literal["maximum", "sum", "occlusion"] = "maximum"
    """How objects overlap: strokes, light, or opaque with the first in front."""
    shift: float = 0.0
    """Pixels by which objects may lie away from their usual place, such as 2 for digits that are not centred."""
    count: int = 10
    """Number of images, if there are many."""
    learn: bool = False
    """First train a recognition network on superposed training images, without labels: once, a few minutes."""
    out: Path | None = None
    """x.png, or x.npz with all arrays (default: RUN/figures/explain.png)."""


def explain(argv: list[str]) -> None:
    a = parse(Explain, "explain", argv)
    out = a.out or output_folder(a.run) / "figures" / "explain.png"
    check_suffix(out, ".png", ".npz")
    from capspoe.core.checks import check_count
    from capspoe.figures.explanation import draw_explanation
    from capspoe.figures.sheet import write
    from capspoe.run.atomic import npz_writer
    from capspoe.run.model import CapsulePoE

    check_count("count", a.count)
    model = CapsulePoE.load(a.run)
    images = model.array(model.tensor(open_images(model, a.image, a.count)))
    if a.learn:
        learn(model, output_folder(a.run))
    found = model.explain(images, a.objects, a.compose, a.shift)
    for row, (capsules, chances) in enumerate(zip(found.capsule, found.probability, strict=True)):
        parts = [f"capsule {j} ({p:.0%})" for j, p in zip(capsules, chances, strict=True) if j >= 0]
        print(f"image {row}: {', '.join(parts)}")
    if out.suffix == ".npz":
        with npz_writer(out) as file:
            for name, values in found._asdict().items():
                file.add(name, values)
    else:
        write(draw_explanation(images, found), out)
    print(out)


def learn(model: "CapsulePoE", folder: Path) -> None:
    """Train the recognition network and store it in the run folder."""
    from collections import deque

    from rich.progress import track

    from capspoe.run import recognition
    from capspoe.training.recognition import STEPS, recognition_steps
    from capspoe.training.train import open_images

    pixels = open_images(model.config).images().pixels
    steps = track(recognition_steps(model, pixels, STEPS), "recognition network", STEPS)
    net, _ = deque(steps, maxlen=1)[0]
    model.set_recognition(net.requires_grad_(False))
    print(recognition.write(net, folder))


def open_images(model: "CapsulePoE", name: str, count: int) -> "np.ndarray":
    """At most `count` images by name or path; a grey file with a light background is inverted for a dark data set."""
    import numpy as np

    from capspoe.data import FolderDataset, Prepare, open_for

    path, (height, width, colours) = Path(name).expanduser(), model.image
    if not path.is_file() or path.suffix.lower() in (".npy", ".npz"):
        dataset = open_for(model.config, model.image, name, "all")
        return dataset.batch(np.arange(min(count, len(dataset))))
    prepare = Prepare.of((height, width), None, {1: "grey", 3: "rgb"}.get(colours))
    pixels = FolderDataset(path.absolute().parent, [path.name], prepare).batch(np.arange(1))
    if colours == 1 and light_edge(pixels / 255) and not light_edge(model.sample(8).images):
        return 255 - pixels
    return pixels


def light_edge(images: "np.ndarray") -> bool:
    """Whether the border of images (n, H, W, C) in [0, 1] is mostly light."""
    import numpy as np

    edges = (images[:, 0], images[:, -1], images[:, :, 0], images[:, :, -1])
    return float(np.median(np.concatenate([edge.ravel() for edge in edges]))) > 0.5
