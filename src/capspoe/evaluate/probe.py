"""How much a linear classifier can read from features: logistic regression on training images."""

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


def linear_probe(
    train: Features,
    train_labels: Labels,
    test: Features,
    test_labels: Labels,
) -> float:
    """Test accuracy on features that are centred and divided by one common scale."""
    x_train = train.astype(np.float32)
    x_test = test.astype(np.float32)
    # One scale for all features keeps their proportions.
    mean = x_train.mean(0)
    scale = max(float((x_train - mean).std()), 1e-12)
    x_train = (x_train - mean) / scale
    x_test = (x_test - mean) / scale
    tried = evenly_spaced(len(x_train), TRIED_ON)
    held_out = tried[9::10]
    rest = np.delete(tried, slice(9, None, 10))

    def fit(strength: float, rows: np.ndarray) -> LogisticRegression:
        # The last steps do not change the accuracy.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            regression = LogisticRegression(C=strength, max_iter=ITERATIONS)
            return regression.fit(x_train[rows], train_labels[rows])

    def held_out_accuracy(strength: float) -> float:
        return fit(strength, rest).score(x_train[held_out], train_labels[held_out])

    # With one class there is nothing to fit.
    if len(np.unique(train_labels)) == 1:
        return float((test_labels == train_labels[0]).mean())
    best = STRENGTHS[0]
    if len(np.unique(train_labels[rest])) > 1:
        best = max(STRENGTHS, key=held_out_accuracy)
    return float(fit(best, np.arange(len(x_train))).score(x_test, test_labels))


def probe(data: EvaluationData, features: Callable[[Split], np.ndarray], count: int) -> float:
    """The probe on features, trained on at most `count` training images."""
    train = data.train.spread(count)
    return linear_probe(features(train), train.labels, features(data.test), data.test.labels)


def other_probes(data: EvaluationData, count: int) -> dict[str, float]:
    """Probes of features other than the poses."""

    def pixels(split: Split) -> np.ndarray:
        return split.pixels.reshape(len(split.pixels), -1) / np.float32(255)

    def codes(split: Split) -> np.ndarray:
        return split.codes.reshape(len(split.codes), -1)

    def gated(split: Split) -> np.ndarray:
        """The mean of h under the gate."""
        on, hidden = encode_codes(data.network, split.codes)
        return (hidden * on[..., None]).reshape(len(on), -1)

    return {
        "raw pixels": probe(data, pixels, count),
        "autoencoder codes": probe(data, codes, count),
        "poses times P(on)": probe(data, gated, count),
    }
