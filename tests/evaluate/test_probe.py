"""The linear probe on features whose answer is known."""

import numpy as np
import pytest

from capspoe.evaluate.probe import linear_probe, other_probes


def split(features, labels):
    half = len(labels) // 2
    return features[:half], labels[:half], features[half:], labels[half:]


@pytest.fixture
def labels():
    return np.random.default_rng(0).integers(0, 3, 1200)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_features_that_tell_the_class(labels, dtype):
    features = np.eye(3)[labels] + 0.05 * np.random.default_rng(1).standard_normal((1200, 3)) + 40
    assert linear_probe(*split(features.astype(dtype), labels)) == 1


def test_the_scale_of_features_does_not_matter(labels):
    noisy = np.eye(3)[labels] + 0.6 * np.random.default_rng(1).standard_normal((1200, 3))
    scores = [linear_probe(*split((factor * noisy).astype(np.float32), labels)) for factor in (1e-4, 1, 1e4)]
    assert scores[0] == pytest.approx(scores[1], abs=0.01) == pytest.approx(scores[2], abs=0.01)
    assert 0.6 < scores[1] < 0.95


def test_noise_tells_nothing_and_an_exclusive_or_is_not_linear(labels):
    rng = np.random.default_rng(2)
    assert linear_probe(*split(rng.standard_normal((1200, 5)), labels)) < 0.42
    x = rng.choice([-1.0, 1.0], (1200, 2))
    assert linear_probe(*split(x, (x[:, 0] * x[:, 1] > 0).astype(int))) < 0.6


def test_a_class_that_is_rare_or_alone():
    """All of one class; and all but one, which is held out."""
    features = np.random.default_rng(4).standard_normal((40, 3))
    one, other = np.zeros(40, int), np.arange(40) % 4 // 3
    assert linear_probe(features, one, features, other) == 0.75
    rare = one.copy()
    rare[9] = 1
    assert linear_probe(features, rare, features, one) >= 0.9


def test_poses_times_the_probability_that_they_are_on(data):
    encoded = [data.network.encode(split.pixels, posterior="energy") for split in (data.train, data.test)]
    train, test = ((hidden * on[..., None]).reshape(len(on), -1) for on, hidden in encoded)
    expected = linear_probe(train, data.train.labels, test, data.test.labels)
    assert other_probes(data, 256)["poses times P(on)"] == pytest.approx(expected, abs=0.02)  # codes of 16 bits
