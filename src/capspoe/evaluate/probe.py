"""How much a linear classifier can read from features: logistic regression, trained on training images."""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from capspoe.data import evenly_spaced
from capspoe.evaluate.clustering import Labels
from capspoe.evaluate.data import EvaluationData, Split, encode_codes
from capspoe.evaluate.generation import Features

STRENGTHS = (0.01, 1.0)  # candidates for scikit-learn's C; a held-out tenth decides
TRIED_ON = 10_000  # images on which they are compared
ITERATIONS = 200


def linear_probe(train: Features, train_labels: Labels, test: Features, test_labels: Labels) -> float:
    """Test accuracy. Features are centred and divided by one common scale, which keeps their proportions."""
    x, y = train.astype(np.float32), test.astype(np.float32)
    mean = x.mean(0)
    scale = max(float((x - mean).std()), 1e-12)
    x, y = (x - mean) / scale, (y - mean) / scale
    tried = evenly_spaced(len(x), TRIED_ON)
    held, rest = tried[9::10], np.delete(tried, slice(9, None, 10))

    def fit(strength: float, rows: np.ndarray) -> LogisticRegression:
        # The last steps do not change the accuracy.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            return LogisticRegression(C=strength, max_iter=ITERATIONS).fit(x[rows], train_labels[rows])

    if len(np.unique(train_labels)) == 1:  # nothing to fit
        return float((test_labels == train_labels[0]).mean())
    best = STRENGTHS[0]
    if len(np.unique(train_labels[rest])) > 1:
        best = max(STRENGTHS, key=lambda c: fit(c, rest).score(x[held], train_labels[held]))
    return float(fit(best, np.arange(len(x))).score(y, test_labels))


def probe(data: EvaluationData, features: Callable[[Split], np.ndarray], count: int) -> float:
    """The probe on features, trained on at most `count` training images."""
    train = data.train.spread(count)
    return linear_probe(features(train), train.labels, features(data.test), data.test.labels)


def other_probes(data: EvaluationData, count: int) -> dict[str, float]:
    """Probes of features other than the poses."""

    def gated(split: Split) -> np.ndarray:
        on, hidden = encode_codes(data.network, split.codes)
        return (hidden * on[..., None]).reshape(len(on), -1)

    return {
        "raw pixels": probe(data, lambda s: s.pixels.reshape(len(s.pixels), -1) / np.float32(255), count),
        "autoencoder codes": probe(data, lambda s: s.codes.reshape(len(s.codes), -1), count),
        "poses times P(on)": probe(data, gated, count),  # the mean of h under the gate
    }
