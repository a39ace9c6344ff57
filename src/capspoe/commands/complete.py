"""`capspoe complete`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from capspoe.commands.arguments import RunFolder, check_suffix, parse
from capspoe.commands.explain import open_images
from capspoe.run.bundled import output_folder


@dataclass(frozen=True)
class Complete:
    """Fill in what is hidden of an image, in several ways; what is seen stays."""

    run: RunFolder
    image: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="IMAGE")]
    """An image file, a folder, an .npy or .npz."""
    mask: str
    """What is hidden: left, right, top, bottom, centre, a box LEFT,TOP,WIDTH,HEIGHT in the network's pixels, or an
    image file, white where it is hidden."""
    count: int = 4
    """Completions of each image."""
    limit: int = 10
    """Number of images, if there are many."""
    seed: int = 0
    """The same seed gives the same completions."""
    out: Path | None = None
    """x.png, or x.npz with images (n, count, H, W, C), capsule, probability (default: RUN/figures/complete.png)."""


def complete(argv: list[str]) -> None:
    a = parse(Complete, "complete", argv)
    out = a.out or output_folder(a.run) / "figures" / "complete.png"
    check_suffix(out, ".png", ".npz")
    import numpy as np
    from PIL import Image

    from capspoe.core.checks import check_count
    from capspoe.core.complete import find_mask
    from capspoe.errors import InputError
    from capspoe.figures.sheet import Row, draw_rows, write
    from capspoe.run.atomic import npz_writer
    from capspoe.run.model import CapsulePoE
    from capspoe.run.pictures import to_rgb_or_grey

    check_count("limit", a.limit)
    model = CapsulePoE.load(a.run)
    height, width = model.image[:2]
    if Path(a.mask).is_file():
        try:
            hidden = np.asarray(Image.open(a.mask).convert("L").resize((width, height), Image.Resampling.BOX)) > 127
        except (OSError, ValueError) as error:
            raise InputError(f"--mask {a.mask} is not a readable image") from error
    else:
        hidden = find_mask(a.mask, (height, width))
    images = model.array(model.tensor(open_images(model, a.image, a.limit)))
    found = model.complete(images, hidden, a.count, a.seed)
    if out.suffix == ".npz":
        with npz_writer(out) as file:
            for name, values in found._asdict().items():
                file.add(name, values)
    else:
        seen = np.where(hidden[..., None], 0.35, to_rgb_or_grey(images))
        rows = [Row("seen", [seen], "grey is hidden")]
        for k in range(a.count):
            captions = [f"capsule {j}" for j in found.capsule[:, k]]
            rows.append(Row(f"completion {k + 1}", [found.images[:, k]], "", captions))
        words = "A capsule and its pose are drawn given the pixels that are seen."
        write(draw_rows("What is hidden, filled in", words, rows, 84), out)
    print(out)
