"""What each dimension of a capsule's pose changes: one dimension moves while the rest stay at the mean."""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from capspoe.evaluate.measures import MEASURES, on_dark_ground
from capspoe.figures.sheet import Row, draw_rows
from capspoe.infer.sample import sample
from capspoe.infer.traverse import Basis, decode_poses, traverse
from capspoe.model.network import Network

AT = np.linspace(-2.5, 2.5, 11)  # positions, in standard deviations of the prior
# A dimension gets a label if a measure rises or falls almost monotonically along it, by at least this many
# standard deviations of that measure over the capsule's own samples.
RANK_CORRELATION, EFFECT, SAMPLES = 0.95, 2.0, 200
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
    change: np.ndarray  # (N,): root mean square difference of the images from that of the mean pose
    label: list[str | None]  # such as "thinner ↔ thicker", from the lowest position to the highest

    @property
    def rows(self) -> list[Row]:
        """A row for each dimension, the one that changes most first."""
        kind = "dimension" if self.basis == "neurons" else "axis"
        return [
            Row(f"{kind} {k}", [self.images[k]], "", (), self.label[k] or "", f"change {self.change[k]:.3f}")
            for k in np.argsort(-self.change, kind="stable")
        ]


def traversal(model: Network, capsule: int, basis: Basis = "neurons") -> Traversal:
    """Move each dimension of a capsule's pose; `basis` as in `capspoe.infer.traverse.traverse`."""
    images = decode_poses(model, capsule, traverse(model, capsule, basis, AT)[:, 0])
    mean = decode_poses(model, capsule, model.prior.centre[capsule][None])
    change = np.sqrt(np.square(images - mean[None]).mean((1, 2, 3, 4)))
    deviation = deviations(model, capsule)
    return Traversal(capsule, basis, images, change, [label_for(row, deviation) for row in images])


def sliders(model: Network, capsule: int) -> list[tuple[int, str | None]]:
    """The principal axes of a capsule's pose with their labels, the one that changes most first."""
    found = traversal(model, capsule, "principal")
    return [(k, found.label[k]) for k in np.argsort(-found.change, kind="stable").tolist()]


def deviations(model: Network, capsule: int) -> dict[str, float]:
    """The standard deviation of each measure over the capsule's samples; empty where measures mean nothing."""
    images = sample(model, SAMPLES, capsule, prior="fitted").images
    if on_dark_ground(images).mean() < 0.9:
        return {}
    return {name: float(measure(images).std()) for name, measure in MEASURES.items()}


def rank_correlation(values: np.ndarray) -> float:
    """Spearman's, of values (11,) with AT. (scipy.stats takes a second to import when the explorer starts.)"""
    _, inverse, times = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(times) - (times - 1) / 2)[inverse]  # ties share their mean rank
    return float(np.corrcoef(ranks, AT)[0, 1])  # AT is evenly spaced, as its ranks are


def label_for(images: np.ndarray, deviation: dict[str, float]) -> str | None:
    """The measure that changes most along a row of images, if the change is steady and large."""
    best, label = EFFECT, None
    for name, (low, high) in _WORDS.items():
        values = MEASURES[name](images)
        if deviation.get(name, 0) < 1e-9 or np.ptp(values) < 1e-9:
            continue
        correlation = rank_correlation(values)
        effect = abs(float(values[-1] - values[0])) / deviation[name]
        if abs(correlation) >= RANK_CORRELATION and effect >= best:
            best, label = effect, f"{low} ↔ {high}" if correlation > 0 else f"{high} ↔ {low}"
    return label


def draw_traversal(found: Traversal) -> Figure:
    """A row for each dimension."""
    kind = "dimensions of its pose" if found.basis == "neurons" else "principal axes of its pose"
    title = f"Capsule {found.capsule}: the {len(found.images)} {kind}"
    words = "one moves by its standard deviations, the rest stay at their mean; largest change first"
    return draw_rows(title, words, found.rows, 56, [f"{at:+.1f}σ" if at else "mean" for at in AT])
