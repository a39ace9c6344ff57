"""How much a linear classifier can read from features: logistic regression, trained on training images."""

import warnings

import numpy as np
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

STRENGTHS = (0.01, 1.0)  # of sklearn's C, between which a held-out tenth decides
TRIED_ON = 10_000  # images on which the strengths are compared
ITERATIONS = 200


def linear_probe(
    train: Float[np.ndarray, "n d"],
    train_labels: Int[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"],
    test_labels: Int[np.ndarray, " m"],
) -> float:
    """Test accuracy. Features are centred and brought to one common scale, so no feature is blown up."""
    x, y = train.astype(np.float32), test.astype(np.float32)
    mean = x.mean(0)
    scale = max(float((x - mean).std()), 1e-12)
    x, y = (x - mean) / scale, (y - mean) / scale
    tried = np.linspace(0, len(x) - 1, min(len(x), TRIED_ON)).astype(int)
    held, rest = tried[9::10], np.delete(tried, slice(9, None, 10))

    def fit(strength: float, rows: np.ndarray) -> LogisticRegression:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the last steps do not change the accuracy
            return LogisticRegression(C=strength, max_iter=ITERATIONS).fit(x[rows], train_labels[rows])

    by_strength = {c: fit(c, rest).score(x[held], train_labels[held]) for c in STRENGTHS}
    best = max(by_strength, key=lambda c: by_strength[c])
    return float(fit(best, np.arange(len(x))).score(y, test_labels))
