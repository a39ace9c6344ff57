"""The Fréchet distance of two sets of points."""

import numpy as np
from jaxtyping import Float


def frechet_distance(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "k d"]) -> float:
    r"""|m_p - m_q|^2 + tr(S_p + S_q - 2 (S_p S_q)^{1/2}), of Gaussians fitted to both sets."""
    cov_p = np.atleast_2d(np.cov(x, rowvar=False))
    cov_q = np.atleast_2d(np.cov(y, rowvar=False))
    # tr (S_p S_q)^{1/2} from the eigenvalues of the symmetric S_p^{1/2} S_q S_p^{1/2}, which also
    # works for singular matrices.
    values, vectors = np.linalg.eigh(cov_p)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    trace = np.sqrt(np.clip(np.linalg.eigvalsh(root @ cov_q @ root), 0, None)).sum()
    between_means = ((x.mean(0) - y.mean(0)) ** 2).sum()
    distance = between_means + np.trace(cov_p) + np.trace(cov_q) - 2 * trace
    # Rounding can push the distance of equal sets below 0.
    return float(max(distance, 0.0))
