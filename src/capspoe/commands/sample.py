"""`capspoe sample`."""

from collections.abc import Iterator
from pathlib import Path

from capspoe.commands.arguments import DEFAULT_RUN, AnyDevice, RunFolder, check_suffix, command
from capspoe.config import Prior
from capspoe.errors import InputError

MAX_SHOWN = 20_000  # images in one picture


@command
def sample(
    run: RunFolder = DEFAULT_RUN,
    *,
    out: Path,
    count: int = 4,
    capsule: int | None = None,
    prior: Prior | None = None,
    gibbs: int = 0,
    prior_scale: float | None = None,
    seed: int = 0,
    device: AnyDevice = "auto",
) -> None:
    """Generate images from a trained run: one column for each capsule in a .png, arrays in an .npz.

    Args:
        out: x.png, or x.npz with images (capsules, count, H, W, C) in [0, 1] and capsule (capsules,).
        count: Images of EACH capsule: --count 100 with 20 capsules is 2,000. (In Python, model.sample(100) is 100.)
        capsule: Only this capsule.
        prior: fitted: the distribution of the capsule's own images. model: the energy itself, by chains from noise.
            standard: the paper's sigmoid(N(0, 1)).
        gibbs: Further Gibbs steps.
        prior_scale: Factor on the prior's standard deviation: more is varied, less is typical (default: the run's).
        seed: The same seed gives the same images.
    """
    check_suffix(out, ".png", ".npz")
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    from capspoe.atomic import npz_writer
    from capspoe.infer.sample import LEAPS, STEPS, r_hat, sample_at
    from capspoe.model.checks import check_capsule, check_count
    from capspoe.model.network import CHUNK
    from capspoe.run.model import CapsulePoE
    from capspoe.run.pictures import tile, write_png

    model = CapsulePoE.load(run, device)
    J = model.top.upper[0]
    check_count("count", count)
    if capsule is not None:
        check_capsule("capsule", capsule, J)
    capsules = list(range(J)) if capsule is None else [capsule]
    if out.suffix.lower() == ".png" and count * len(capsules) > MAX_SHOWN:
        raise InputError(f"a .png shows at most {MAX_SHOWN:,} images; lower --count, or write x.npz")

    def chunks(j: int) -> Iterator[np.ndarray]:
        # Image k of capsule j has index k J + j: the same alone, with others, and in samples.png.
        for start in range(0, count, CHUNK):
            index = J * np.arange(start, min(start + CHUNK, count)) + j
            yield sample_at(model, index, np.full(len(index), j), prior, gibbs, seed, prior_scale).images

    if out.suffix.lower() == ".npz":
        with npz_writer(out) as file:
            file.add("capsule", np.array(capsules, np.int64))
            shape = (len(capsules), count, *model.image)
            progress = track(capsules, "sampling", console=Console(stderr=True), transient=True)
            file.add_pieces("images", shape, np.float32, (part for j in progress for part in chunks(j)))
    else:
        columns = [np.concatenate(list(chunks(j))) for j in capsules]
        write_png(tile(np.stack(columns, 1), scale=2), out)
    if prior == "model":
        found = r_hat(model.top, seed=seed)
        print(
            f"{STEPS} steps of {LEAPS} leaps from noise; split R-hat of 8 chains per capsule: median "
            f"{found.median():.2f}, worst {found.max():.2f} (capsule {int(found.argmax())})"
        )
    print(out)
