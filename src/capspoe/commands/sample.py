"""`capspoe sample`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capspoe.commands.arguments import DEFAULT_RUN, AnyDevice, RunFolder, check_suffix, parse
from capspoe.config import Prior
from capspoe.errors import InputError

MAX_SHOWN = 20_000  # images in one picture


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Generate images from a trained run: one column for each capsule in a .png, arrays in an .npz."""

    run: RunFolder = DEFAULT_RUN
    out: Path
    """x.png, or x.npz with images (capsules, count, H, W, C) in [0, 1] and capsule (capsules,)."""
    count: int = 4
    """Images of EACH capsule: --count 100 with 20 capsules is 2,000. (In Python, model.sample(100) is 100 in all.)"""
    capsule: int | None = None
    """Only this capsule."""
    prior: Prior | None = None
    """fitted: the distribution of the capsule's own images. model: the energy itself, by chains from noise.
    standard: the paper's sigmoid(N(0, 1))."""
    gibbs: int = 0
    """Further Gibbs steps."""
    prior_scale: float | None = None
    """Factor on the fitted prior's standard deviation: more is varied, less is typical (default: the run's)."""
    seed: int = 0
    """The same seed gives the same images."""
    device: AnyDevice = "auto"


def sample(argv: list[str]) -> None:
    a = parse(Sample, "sample", argv)
    check_suffix(a.out, ".png", ".npz")
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    from capspoe.core.checks import check_capsule, check_count
    from capspoe.core.network import CHUNK
    from capspoe.core.sampling import LEAPS, STEPS, r_hat, sample_at
    from capspoe.run.atomic import npz_writer
    from capspoe.run.model import CapsulePoE
    from capspoe.run.pictures import tile, write_png

    model = CapsulePoE.load(a.run, a.device)
    J = model.top.upper[0]
    check_count("count", a.count)
    if a.capsule is not None:
        check_capsule("capsule", a.capsule, J)
    capsules = list(range(J)) if a.capsule is None else [a.capsule]

    if a.out.suffix.lower() == ".png" and a.count * len(capsules) > MAX_SHOWN:
        raise InputError(f"a .png shows at most {MAX_SHOWN:,} images; lower --count, or write x.npz")

    def chunks(capsule: int) -> Iterator[np.ndarray]:
        # Image k of capsule j has index k J + j: the same alone, with others, and in samples.png.
        for start in range(0, a.count, CHUNK):
            index = J * np.arange(start, min(start + CHUNK, a.count)) + capsule
            on = np.full(len(index), capsule)
            yield sample_at(model, index, on, a.prior, a.gibbs, a.seed, a.prior_scale).images

    if a.out.suffix.lower() == ".npz":
        with npz_writer(a.out) as file:
            file.add("capsule", np.array(capsules, np.int64))
            shape = (len(capsules), a.count, *model.image)
            progress = track(capsules, "sampling", console=Console(stderr=True), transient=True)
            file.add_pieces("images", shape, np.float32, (part for j in progress for part in chunks(j)))
    else:
        columns = [np.concatenate(list(chunks(j))) for j in capsules]
        write_png(tile(np.stack(columns, 1), scale=2), a.out)
    if a.prior == "model":
        found = r_hat(model.top, seed=a.seed)
        print(
            f"{STEPS} steps of {LEAPS} leaps from noise; split R-hat of 8 chains per capsule: median "
            f"{found.median():.2f}, worst {found.max():.2f} (capsule {int(found.argmax())})"
        )
    print(a.out)
