"""What each dimension of a capsule's pose changes: one moves while the rest stay at the mean."""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from capspoe.evaluate.measures import MEASURES, on_dark_ground
from capspoe.figures.sheet import Row, draw_rows
from capspoe.infer.sample import sample
from capspoe.infer.traverse import Basis, decode_poses, traverse
from capspoe.model.network import Network

AT = np.linspace(-2.5, 2.5, 11)  # positions, in standard deviations of the prior
# A dimension gets a label if a measure rises or falls along it almost without exception, by at
# least EFFECT standard deviations of that measure over the capsule's own samples.
RANK_CORRELATION = 0.95
EFFECT = 2.0
SAMPLES = 200
_WORDS = {
    "thickness": ("thinner", "thicker"),
    "slant": ("leans left", "leans right"),
    "width": ("narrower", "wider"),
    "height": ("shorter", "taller"),
}


class Traversal(NamedTuple):
    """The rows are the dimensions of the pose, in their own order."""

    capsule: int
    basis: Basis
    images: np.ndarray  # (N, 11, H, W, C): dimension k moved to each position of AT
    change: np.ndarray  # (N,): root mean square difference from the image of the mean pose
    label: list[str | None]  # such as "thinner ↔ thicker", from the lowest position to the highest

    @property
    def rows(self) -> list[Row]:
        """A row for each dimension, the one that changes most first."""
        kind = "dimension" if self.basis == "neurons" else "axis"
        rows = []
        for k in np.argsort(-self.change, kind="stable"):
            detail = f"change {self.change[k]:.3f}"
            label = self.label[k] or ""
            rows.append(Row(f"{kind} {k}", [self.images[k]], remark=label, detail=detail))
        return rows


def traversal(model: Network, capsule: int, basis: Basis = "neurons") -> Traversal:
    """Move each dimension of a capsule's pose; `basis` as in `capspoe.infer.traverse.traverse`."""
    images = decode_poses(model, capsule, traverse(model, capsule, basis, AT)[:, 0])
    mean = decode_poses(model, capsule, model.prior.centre[capsule][None])
    change = np.sqrt(np.square(images - mean[None]).mean((1, 2, 3, 4)))
    deviation = deviations(model, capsule)
    labels = [label_for(row, deviation) for row in images]
    return Traversal(capsule, basis, images, change, labels)


def sliders(model: Network, capsule: int) -> list[tuple[int, str | None]]:
    """The principal axes of a capsule's pose with their labels, the one that changes most first."""
    axes = traversal(model, capsule, "principal")
    order = np.argsort(-axes.change, kind="stable")
    return [(k, axes.label[k]) for k in order.tolist()]


def deviations(model: Network, capsule: int) -> dict[str, float]:
    """The standard deviation of each measure over the capsule's samples."""
    images = sample(model, SAMPLES, capsule, prior="fitted").images
    # Without a dark background the measures mean nothing.
    if on_dark_ground(images).mean() < 0.9:
        return {}
    return {name: float(measure(images).std()) for name, measure in MEASURES.items()}


def rank_correlation(values: np.ndarray) -> float:
    """Spearman's rank correlation of values (11,) with AT."""
    # Not by scipy.stats, which takes a second to import when the explorer starts.
    _, inverse, times = np.unique(values, return_inverse=True, return_counts=True)
    # Ties share their mean rank.
    ranks = (np.cumsum(times) - (times - 1) / 2)[inverse]
    # AT is evenly spaced, as its ranks are, so it stands for them.
    return float(np.corrcoef(ranks, AT)[0, 1])


def label_for(images: np.ndarray, deviation: dict[str, float]) -> str | None:
    """The measure that changes most along a row of images, if the change is steady and large."""
    best = EFFECT
    label = None
    for name, (low, high) in _WORDS.items():
        values = MEASURES[name](images)
        # A measure that does not vary has neither ranks nor a scale.
        if deviation.get(name, 0) < 1e-9 or np.ptp(values) < 1e-9:
            continue
        correlation = rank_correlation(values)
        effect = abs(float(values[-1] - values[0])) / deviation[name]
        if abs(correlation) >= RANK_CORRELATION and effect >= best:
            best = effect
            label = f"{low} ↔ {high}" if correlation > 0 else f"{high} ↔ {low}"
    return label


def draw_traversal(dimensions: Traversal) -> Figure:
    """A row for each dimension."""
    kind = "dimensions" if dimensions.basis == "neurons" else "principal axes"
    title = f"Capsule {dimensions.capsule}: the {len(dimensions.images)} {kind} of its pose"
    words = "one moves by its standard deviations, the rest stay at their mean; largest change first"
    head = [f"{at:+.1f}σ" if at else "mean" for at in AT]
    return draw_rows(title, words, dimensions.rows, 56, head)
