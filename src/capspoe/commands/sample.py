"""`capspoe sample`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from capspoe.commands.arguments import DEFAULT_RUN, AnyDevice, RunFolder, check_suffix, command, progress
from capspoe.config import Prior
from capspoe.errors import InputError

if TYPE_CHECKING:
    import numpy as np

MAX_SHOWN = 20_000  # images in one picture
COLUMNS = 20  # of a picture of images in proportion to the capsules' use


@command
def sample(
    run: RunFolder = DEFAULT_RUN,
    *,
    out: Path,
    count: int | None = None,
    each: int | None = None,
    capsule: int | None = None,
    prior: Prior | None = None,
    gibbs: int = 0,
    prior_scale: float | None = None,
    seed: int = 0,
    device: AnyDevice = "auto",
) -> None:
    """Generate images from a trained run: --count of them in all, or --each of every capsule (default: --each 4).

    Args:
        out: x.png, or x.npz. With --count: images (n, H, W, C) in [0, 1] and capsule (n,). With --each: images
            (capsules, each, H, W, C) and capsule (capsules,); in x.png every capsule has a column.
        count: Images in all, in proportion to the capsules' use.
        each: Images of every capsule.
        capsule: Only this capsule.
        prior: fitted: the distribution of the capsule's own images. model: the energy itself, by chains from noise.
            standard: the paper's sigmoid(N(0, 1)).
        gibbs: Further Gibbs steps.
        prior_scale: Factor on the prior's standard deviation: more is varied, less is typical (default: the run's).
        seed: The same seed gives the same images.
    """
    check_suffix(out, ".png", ".npz")
    if count is not None and each is not None:
        raise InputError("choose --count, images in all, or --each, images of every capsule")
    import numpy as np

    from capspoe.infer.sample import LEAPS, STEPS, r_hat, sample_at
    from capspoe.model.checks import check_capsule, check_count
    from capspoe.model.network import CHUNK
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run, device)
    J = model.top.upper[0]
    if capsule is not None:
        check_capsule("capsule", capsule, J)

    def images_at(index: np.ndarray, on: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        return sample_at(model, index, on, prior, gibbs, seed, prior_scale)

    if count is not None:
        check_count("count", count)

        def in_all() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for start in range(0, count, CHUNK):
                index = np.arange(start, min(start + CHUNK, count))
                yield images_at(index, None if capsule is None else np.full(len(index), capsule))

        write_count(in_all(), (count, *model.image), out)
    else:
        each = 4 if each is None else each
        check_count("each", each)
        capsules = list(range(J)) if capsule is None else [capsule]

        def of_capsule(j: int) -> Iterator[np.ndarray]:
            # Image k of capsule j has index k J + j: the same alone, with others, and in samples.png.
            for start in range(0, each, CHUNK):
                index = J * np.arange(start, min(start + CHUNK, each)) + j
                yield images_at(index, np.full(len(index), j))[0]

        write_each({j: of_capsule(j) for j in capsules}, (len(capsules), each, *model.image), out)
    if prior == "model":
        worst = r_hat(model.top, seed=seed)
        print(
            f"{STEPS} steps of {LEAPS} leaps from noise; split R-hat of 8 chains per capsule: median "
            f"{worst.median():.2f}, worst {worst.max():.2f} (capsule {int(worst.argmax())})"
        )
    print(out)


def write_count(chunks: "Iterator[tuple[np.ndarray, np.ndarray]]", shape: tuple[int, ...], out: Path) -> None:
    """Write images (n, H, W, C) and their capsules, chunk by chunk."""
    import numpy as np

    from capspoe.atomic import npz_writer
    from capspoe.run.pictures import tile, write_png

    count = shape[0]
    if out.suffix.lower() == ".npz":
        capsules = []

        def images() -> Iterator[np.ndarray]:
            for pixels, on in progress(chunks, count, "sampling"):
                capsules.append(on)
                yield pixels

        with npz_writer(out) as file:
            file.add_pieces("images", shape, np.float32, images())
            file.add("capsule", np.concatenate(capsules))
        return
    check_shown(count)
    pixels = np.concatenate([chunk for chunk, _ in progress(chunks, count, "sampling")])
    columns = min(count, COLUMNS)
    blank = np.ones((-count % columns, *shape[1:]), np.float32)
    grid = np.concatenate([pixels, blank]).reshape(-1, columns, *shape[1:])
    write_png(tile(grid, scale=2), out)


def write_each(columns: "dict[int, Iterator[np.ndarray]]", shape: tuple[int, ...], out: Path) -> None:
    """Write images (capsules, each, H, W, C), capsule by capsule."""
    import numpy as np

    from capspoe.atomic import npz_writer
    from capspoe.run.pictures import tile, write_png

    if out.suffix.lower() == ".npz":
        pieces = (chunk for column in progress(columns.values(), len(columns), "sampling") for chunk in column)
        with npz_writer(out) as file:
            file.add("capsule", np.array(list(columns), np.int64))
            file.add_pieces("images", shape, np.float32, pieces)
        return
    check_shown(shape[0] * shape[1])
    stacked = [np.concatenate(list(column)) for column in columns.values()]
    write_png(tile(np.stack(stacked, 1), scale=2), out)


def check_shown(count: int) -> None:
    if count > MAX_SHOWN:
        raise InputError(f"a .png shows at most {MAX_SHOWN:,} images; ask for fewer, or write x.npz")
