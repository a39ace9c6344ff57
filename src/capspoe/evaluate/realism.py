r"""How realistic images are: distances between two clouds of features, (n, d) each.

FID (Heusel et al. 2017), KID (Binkowski et al. 2018), precision and recall (Kynkaanniemi et al. 2019), density
and coverage (Naeem et al. 2020).
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

NEIGHBOURS = 5  # the distance of the fifth is the radius of a ball; see docs/evaluation.md for other numbers
CHUNK = 1000

Features = Float[np.ndarray, "n d"]


class Gaussian(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray


def gaussian(features: Features) -> Gaussian:
    """Mean and covariance of a cloud."""
    return Gaussian(features.mean(0), np.atleast_2d(np.cov(features, rowvar=False)))


def frechet(p: Gaussian, q: Gaussian) -> float:
    r"""|m_p - m_q|^2 + tr(S_p + S_q - 2 (S_p S_q)^{1/2}): the squared 2-Wasserstein distance of two Gaussians.

    The trace of the root is the sum of the roots of the eigenvalues of S_p^{1/2} S_q S_p^{1/2}, which is
    symmetric, so that covariances without full rank do no harm.
    """
    values, vectors = np.linalg.eigh(p.covariance)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    product = np.linalg.eigvalsh(root @ q.covariance @ root)
    trace = np.sqrt(np.clip(product, 0, None)).sum()
    difference = p.mean - q.mean
    total = difference @ difference + np.trace(p.covariance) + np.trace(q.covariance) - 2 * trace
    return float(max(total, 0.0))


def fid(real: Features, fake: Features) -> float:
    """The Frechet distance of the Gaussians fitted to both clouds; 0 is the same."""
    return frechet(gaussian(real), gaussian(fake))


def kid(real: Features, fake: Features) -> float:
    r"""The squared maximum mean discrepancy with the kernel (x.y / d + 1)^3, without bias.

    \sum_{i \ne j} k(x_i, x_j) / (n (n - 1)) + the same for y - 2 \sum_{ij} k(x_i, y_j) / (n m). It is small
    and noisy around 0 for equal distributions, so negative values occur.
    """

    def within(x: Features) -> float:
        n = len(x)
        own = ((x * x).sum(1) / x.shape[1] + 1) ** 3
        return (between(x, x) * n * n - own.sum()) / (n * (n - 1))

    def between(x: Features, y: Features) -> float:
        total = 0.0
        for start in range(0, len(x), CHUNK):
            total += float(((x[start : start + CHUNK] @ y.T / x.shape[1] + 1) ** 3).sum())
        return total / (len(x) * len(y))

    return float(within(real) + within(fake) - 2 * between(real, fake))


def distances(x: Features, y: Features) -> Float[np.ndarray, "n m"]:
    """Euclidean distances of every pair, in float32."""
    a, b = (torch.from_numpy(np.ascontiguousarray(v, np.float32)) for v in (x, y))
    return torch.cdist(a, b).numpy()


def radii(x: Features, k: int) -> Float[np.ndarray, " n"]:
    """The distance of each point to its k-th nearest neighbour among the others."""
    k = min(k, len(x) - 1)
    found = []
    for start in range(0, len(x), CHUNK):
        rows = distances(x[start : start + CHUNK], x)
        own = np.arange(len(rows))
        rows[own, start + own] = -1  # itself comes first, whatever the rounding
        found.append(np.partition(rows, k, axis=1)[:, k])
    return np.concatenate(found)


def realism(real: Features, fake: Features, neighbours: int = NEIGHBOURS) -> dict[str, float]:
    """precision   share of fakes inside the ball of some real image
    recall      share of reals inside the ball of some fake
    density     real balls around a fake, on average, in units of k: above 1 in the dense regions
    coverage    share of reals with a fake inside their own ball
    """
    k = min(neighbours, len(real) - 1)
    pairs = distances(real, fake)
    real_ball, fake_ball = radii(real, k), radii(fake, neighbours)
    inside_real = pairs <= real_ball[:, None]
    return {
        "precision": float(inside_real.any(0).mean()),
        "recall": float((pairs <= fake_ball[None, :]).any(1).mean()),
        "density": float(inside_real.sum(0).mean() / k),
        "coverage": float(inside_real.any(1).mean()),
    }
