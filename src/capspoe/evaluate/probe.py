"""How much a linear classifier can read from features: logistic regression, trained on training images."""

import warnings
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from capspoe.data.images import even_choice
from capspoe.evaluate.material import Features, Material, hidden_of

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
    tried = even_choice(len(x), TRIED_ON)
    held, rest = tried[9::10], np.delete(tried, slice(9, None, 10))

    def fit(strength: float, rows: np.ndarray) -> LogisticRegression:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the last steps do not change the accuracy
            return LogisticRegression(C=strength, max_iter=ITERATIONS).fit(x[rows], train_labels[rows])

    if len(np.unique(train_labels)) == 1:  # then there is nothing to fit
        return float((test_labels == train_labels[0]).mean())
    best = STRENGTHS[0]
    if len(np.unique(train_labels[rest])) > 1:
        by_strength = {c: fit(c, rest).score(x[held], train_labels[held]) for c in STRENGTHS}
        best = max(by_strength, key=lambda c: by_strength[c])
    return float(fit(best, np.arange(len(x))).score(y, test_labels))


def probe(material: Material, features: Features, count: int) -> float | None:
    """The probe on features of an even choice of at most `count` training images; None without labels."""
    m = material
    if m.train_labels is None or m.test_labels is None:
        return None
    some = even_choice(len(m.train_pixels), count)
    train = features(m.train_pixels[some], m.train_codes[some])
    test = features(m.test_pixels, m.test_codes)
    return linear_probe(train, m.train_labels[some], test, m.test_labels)


def probes(material: Material, count: int) -> dict[str, Any]:
    """What else than the hidden numbers a linear classifier could be given."""
    given: dict[str, Features] = {
        "raw pixels": lambda pixels, _: pixels.reshape(len(pixels), -1) / np.float32(255),
        "autoencoder codes": lambda _, codes: codes.reshape(len(codes), -1),
        "hidden numbers times P(on)": lambda _, codes: hidden_of(material.model, codes, gated=True)[1],
    }
    return {name: probe(material, features, count) for name, features in given.items()}
