"""How realistic generated images are: distances between two sets of features, (n, d) each."""

import numpy as np
import torch
from jaxtyping import Float
from sklearn.metrics.pairwise import polynomial_kernel

from capspoe.data import evenly_spaced
from capspoe.infer.frechet import frechet_distance

NEIGHBOURS = 5  # docs/evaluation.md has the scores for other numbers

Features = Float[np.ndarray, "n d"]


def generation_scores(
    real: Features,
    fake: Features,
    neighbours: int = NEIGHBOURS,
) -> dict[str, float]:
    """FID against all real images, the other scores against as many as there are generated ones."""
    some = real[evenly_spaced(len(real), len(fake))]
    return {
        "fid": fid(real, fake),
        "kid": kid(some, fake),
        **neighbour_scores(some, fake, neighbours),
    }


def scores_of_sets(
    real: Features,
    fake: Features,
    sets: int = 1,
    neighbours: int = NEIGHBOURS,
) -> dict[str, float]:
    """The mean of each score over several sets of generated images, and half the range of their FIDs.

    Every `sets`-th image belongs to one set. FID depends on the number of images, so that the mean over five sets of
    2,000 compares with one set of 2,000, and is less noisy.
    """
    by_set = [generation_scores(real, fake[first::sets], neighbours) for first in range(sets)]
    scores = {name: float(np.mean([one[name] for one in by_set])) for name in by_set[0]}
    fids = [one["fid"] for one in by_set]
    return scores | {"fid_spread": (max(fids) - min(fids)) / 2}


def fid(real: Features, fake: Features) -> float:
    """The Fréchet distance of the features (Heusel et al. 2017)."""
    return frechet_distance(real, fake)


def kid(real: Features, fake: Features) -> float:
    r"""Squared maximum mean discrepancy with the kernel (x.y / d + 1)^3 (Binkowski et al. 2018).

    \sum_{i \ne j} k(x_i, x_j) / (n (n - 1)) + the same for y - 2 \sum_{ij} k(x_i, y_j) / (n m).
    The estimate is unbiased, so it can be negative.
    """

    def within(x: Features) -> float:
        # Pairs of a point with itself are on the diagonal, and do not count.
        kernel = polynomial_kernel(x, degree=3)
        return (kernel.sum() - np.trace(kernel)) / (len(x) * (len(x) - 1))

    between = polynomial_kernel(real, fake, degree=3).mean()
    return float(within(real) + within(fake) - 2 * between)


def neighbour_scores(
    real: Features,
    fake: Features,
    neighbours: int = NEIGHBOURS,
) -> dict[str, float]:
    """Scores by balls that reach from each point to its k-th nearest neighbour among its own kind.

    precision : share of generated images inside the ball of some real one (Kynkaanniemi et al. 2019)
    recall : share of real images inside the ball of some generated one
    density : mean number of real balls around a generated image, divided by k (Naeem et al. 2020)
    coverage : share of real images with a generated one inside their ball
    """
    k = min(neighbours, len(real) - 1)
    pairs = distances(real, fake)
    inside_real = pairs <= radii(real, k)[:, None]
    return {
        "precision": float(inside_real.any(0).mean()),
        "recall": float((pairs <= radii(fake, neighbours)).any(1).mean()),
        "density": float(inside_real.sum(0).mean() / k),
        "coverage": float(inside_real.any(1).mean()),
    }


def distances(x: Features, y: Features) -> Float[np.ndarray, "n m"]:
    """Euclidean distances of all pairs; exactly 0 for equal points."""
    a = torch.from_numpy(x).float()
    b = torch.from_numpy(y).float()
    # The faster modes of `cdist` do not give 0 for equal points.
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").numpy()


def radii(x: Features, k: int) -> Float[np.ndarray, " n"]:
    """Distance of each point to its k-th nearest neighbour."""
    # Counted from 0, since the nearest point of all is the point itself.
    nearest = min(k, len(x) - 1)
    return np.partition(distances(x, x), nearest, axis=1)[:, nearest]
