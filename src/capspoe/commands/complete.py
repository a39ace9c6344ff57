"""`capspoe complete`."""

from pathlib import Path
from typing import TYPE_CHECKING

from capspoe.commands.arguments import Images, RunFolder, SkipBad, check_suffix, command, figure_path
from capspoe.commands.explain import write_arrays
from capspoe.commands.images import open_given_images
from capspoe.errors import InputError

if TYPE_CHECKING:
    import numpy as np

HIDDEN = 0.35  # brightness of hidden pixels in the figure


@command
def complete(
    run: RunFolder,
    images: Images,
    mask: str,
    count: int = 4,
    limit: int = 10,
    seed: int = 0,
    skip_bad: SkipBad = False,
    out: Path | None = None,
) -> None:
    """Fill in a hidden part of an image, in several ways; the visible pixels stay.

    Args:
        mask: What to hide: left, right, top, bottom, centre, a box LEFT,TOP,WIDTH,HEIGHT in the network's pixels,
            or an image file, white where pixels are hidden.
        count: Completions of each image.
        limit: Number of images, if there are many.
        seed: The same seed gives the same completions.
        out: x.png, or x.npz: images (n, count, H, W, C), capsule, probability (default: RUN/figures/complete.png).
    """
    out = out or figure_path(run, "complete.png")
    check_suffix(out, ".png", ".npz")
    import numpy as np

    from capspoe.figures.sheet import Row, draw_rows, write
    from capspoe.infer.complete import find_mask
    from capspoe.model.checks import check_count
    from capspoe.run.model import CapsulePoE
    from capspoe.run.pictures import to_rgb_or_grey

    check_count("limit", limit)
    model = CapsulePoE.load(run)
    size = model.image[:2]
    hidden = read_mask(Path(mask), size) if Path(mask).is_file() else find_mask(mask, size)
    given = open_given_images(model, run, images, limit=limit, skip_bad=skip_bad)
    pictures = model.array(model.tensor(given.dataset.batch(np.arange(len(given.dataset)))))
    completion = model.complete(pictures, hidden, count, seed)
    # Where pixels are seen, the reconstruction of a completed image should be like them.
    seen_errors = np.square(model.reconstruct(completion.images[:, 0]) - pictures)[:, ~hidden]
    if seen_errors.size:
        given.note_errors(0, seen_errors.mean((1, 2)))
    given.announce()
    if out.suffix.lower() == ".npz":
        write_arrays(completion, out)
    else:
        seen = np.where(hidden[..., None], HIDDEN, to_rgb_or_grey(pictures))
        rows = [Row("seen", [seen], "grey is hidden")]
        for k in range(count):
            captions = [f"capsule {j}" for j in completion.capsule[:, k]]
            rows.append(Row(f"completion {k + 1}", [completion.images[:, k]], "", captions))
        words = "A capsule and its pose are drawn given the pixels that are seen."
        write(draw_rows("What is hidden, filled in", words, rows, 84), out)
    print(out)


def read_mask(path: Path, size: tuple[int, int]) -> "np.ndarray":
    """The mask in an image file, resized: True where it is white."""
    import numpy as np
    from PIL import Image

    height, width = size
    try:
        grey = Image.open(path).convert("L").resize((width, height), Image.Resampling.BOX)
    except (OSError, ValueError) as error:
        raise InputError(f"--mask {path} is not a readable image") from error
    return np.asarray(grey) > 127
