"""What each of a capsule's numbers changes: one number swept while the rest stay."""

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata

from capspoe.figures.panels import ACCENT, QUIET, Sheet
from capspoe.measure import MEASURES, on_dark_ground
from capspoe.model import CHUNK, CapsulePoE, check_capsule
from capspoe.sampling import sample, switched_on_states
from capspoe.validate import check_choice, check_count

Axes = Literal["neurons", "principal"]
REACH = 2.5  # standard deviations to either side
STEPS = 11
# A row is given a name when a measure rises or falls almost without exception along it, by at least so many of
# the standard deviations that it has over the capsule's own samples.
RANK_CORRELATION, EFFECT, _SAMPLES = 0.95, 2.0, 200
_WORDS = {
    "thickness": ("thinner", "thicker"),
    "slant": ("leans left", "leans right"),
    "width": ("narrower", "wider"),
    "height": ("shorter", "taller"),
}


class Label(NamedTuple):
    """A measurable change along a row."""

    measure: str
    correlation: float  # rank correlation with the swept number
    effect: float  # change from end to end, in standard deviations over the capsule's samples

    @property
    def words(self) -> str:
        """From the left end to the right one."""
        low, high = _WORDS[self.measure]
        return f"{low} → {high}" if self.correlation > 0 else f"{high} → {low}"


class Traversal(NamedTuple):
    """Rows sorted by how much they change the image."""

    capsule: int
    axes: Axes
    number: np.ndarray  # (N,): which number or axis a row sweeps
    sigma: np.ndarray  # (steps,): where its images stand, in standard deviations from the mean
    images: np.ndarray  # (N, steps, H, W, C)
    change: np.ndarray  # (N,): root mean square difference of the row's images from the one at the mean
    label: list[Label | None]


def directions(model: CapsulePoE, capsule: int, axes: Axes) -> torch.Tensor:
    """(N, N): row k is one standard deviation of number k, or the k-th principal axis, of the fitted prior."""
    axes_NN = model.prior.axes[capsule]
    if axes == "principal":
        return axes_NN.T
    return torch.diag(axes_NN.square().sum(-1).sqrt())


@torch.no_grad()
def traverse(
    model: CapsulePoE, capsule: int, axes: Axes = "neurons", steps: int = STEPS, reach: float = REACH
) -> Traversal:
    """Sweep each of the capsule's N numbers, or principal axes, over +-`reach` standard deviations of its prior."""
    J, N = model.top.upper
    check_capsule("capsule", capsule, J)
    check_choice("axes", axes, ("neurons", "principal"))
    check_count("steps", steps, least=2)
    sigma = np.linspace(-reach, reach, steps)
    along = torch.as_tensor(sigma, dtype=model.prior.axes.dtype, device=model.device)
    z = model.prior.centre[capsule] + along[None, :, None] * directions(model, capsule, axes)[:, None]
    images = painted(model, capsule, z.reshape(N * steps, N)).reshape(N, steps, *model.image)
    mean = painted(model, capsule, model.prior.centre[capsule][None])
    change = np.sqrt(np.square(images - mean[None]).mean((1, 2, 3, 4)))
    order = np.argsort(-change, kind="stable")
    spread = _spread(model, capsule)
    labels = [_label(images[k], spread) for k in order]
    return Traversal(capsule, axes, order, sigma, images[order], change[order], labels)


@torch.no_grad()
def painted(model: CapsulePoE, capsule: int, z: torch.Tensor) -> np.ndarray:
    """What the capsule paints with pre-activations z (n, N), alone: (n, H, W, C)."""
    parts = []
    for chunk in z.split(CHUNK):
        on = torch.full((len(chunk),), capsule, device=z.device)
        h = switched_on_states(model, on, model.top.hidden_given_visible(chunk))
        parts.append(model.array(model.paint(h, model.reverse_weights(h))))
    return np.concatenate(parts)


def _spread(model: CapsulePoE, capsule: int) -> dict[str, float]:
    """The standard deviation of every measure over the capsule's samples; none where measures mean nothing."""
    images = sample(model, _SAMPLES, capsule, prior="fitted").images
    if on_dark_ground(images).mean() < 0.9:
        return {}
    return {name: float(measure(images).std()) for name, measure in MEASURES.items()}


def _label(images: np.ndarray, spread: dict[str, float]) -> Label | None:
    """The measure that changes most along a row, if it does so steadily and by much."""
    found = []
    for name, deviation in spread.items():
        values = MEASURES[name](images)
        if deviation < 1e-9 or np.ptp(values) < 1e-9:
            continue
        correlation = float(np.corrcoef(rankdata(values), np.arange(len(values)))[0, 1])
        effect = abs(float(values[-1] - values[0])) / deviation
        if abs(correlation) >= RANK_CORRELATION and effect >= EFFECT:
            found.append(Label(name, correlation, effect))
    return max(found, key=lambda label: label.effect, default=None)


def row_name(traversal: Traversal, row: int) -> str:
    kind = "number" if traversal.axes == "neurons" else "axis"
    return f"{kind} {traversal.number[row]}"


def write_traversal(traversal: Traversal, path: Path) -> None:
    """A row for each number, most change first."""
    N, steps, H, W, _ = traversal.images.shape
    scale = max(1, round(56 / max(H, W)))
    pitch_x, pitch_y, left, top = W * scale + 4, H * scale + 4, 96, 86
    sheet = Sheet(left + steps * pitch_x + 210, top + N * pitch_y + 20)
    kind = "numbers" if traversal.axes == "neurons" else "principal axes"
    sheet.text(20, 24, f"Capsule {traversal.capsule}: what each of its {N} {kind} changes", 18, weight="bold")
    words = (
        "one swept over its standard deviations, the rest at their mean; the rows that change most come first"
    )
    sheet.text(20, 48, words, 12, QUIET)
    for k, sigma in enumerate(traversal.sigma):
        sheet.text(left + k * pitch_x + W * scale / 2, top - 12, f"{sigma:+.1f}σ" if sigma else "mean", 11, QUIET,
                   ha="center")  # fmt: skip
    for r in range(N):
        y = top + r * pitch_y
        middle = y + H * scale / 2
        sheet.text(left - 12, middle, row_name(traversal, r), 12, ha="right")
        for k in range(steps):
            sheet.image(left + k * pitch_x, y, traversal.images[r, k], scale)
        x, label = left + steps * pitch_x + 12, traversal.label[r]
        if label:
            sheet.text(x, middle, label.words, 13, ACCENT, weight="bold")
        below = 20 if label else 0
        sheet.text(x, middle + below, f"change {traversal.change[r]:.3f}", 11, QUIET)
    sheet.write(path)
