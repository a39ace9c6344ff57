"""Linear models of groups of codes: the capsules' rivals, with the same treatment."""

import copy

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from capspoe import CapsulePoE
from capspoe.evaluate import groups
from capspoe.evaluate.data import EvaluationData
from capspoe.evaluate.groups import LinearGroups, flat, linear_models
from capspoe.run import checkpoint
from capspoe.training.spectral import pca_points


@pytest.mark.parametrize("seed", [-1, 2**40])
def test_every_model_takes_any_seed(data, seed):
    other = EvaluationData(data.network, samples=5, seed=seed)
    other.train, other.test = data.train.spread(60), data.test.spread(20)
    made = {name: make() for rows in linear_models(other) for name, make in rows.items()}
    assert len(made) == 8
    for name, (images, winner, features) in made.items():
        assert images.shape == (5, 12, 12, 1)
        assert 0 <= images.min() <= images.max() <= 1
        assert winner is None or set(winner) <= {0, 1, 2, 3}
        assert (features is None) == name.endswith("plain")
        assert features is None or np.isfinite(features(other.test)).all()


def test_a_plain_model_has_the_moments_of_its_group(data, monkeypatch):
    """One group, and as many components as the codes have dimensions: one Gaussian with their covariance."""
    monkeypatch.setattr(data, "samples", 20_000)
    monkeypatch.setattr(data, "decode", lambda codes: codes)
    away_from_the_ends = 0.4 + 0.2 * data.train.codes.astype(np.float32)
    monkeypatch.setattr(data, "train", data.train._replace(codes=away_from_the_ends))
    codes = flat(data.train)
    model = LinearGroups(data, np.zeros(len(codes), int), PCA, codes.shape[1], 1)
    drawn = model.sample(None, 1.0)
    np.testing.assert_allclose(drawn.mean(0), codes.mean(0), atol=0.005)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(codes.T), atol=5e-4)


def test_the_tricks_are_the_capsules(data):
    """The same prior scale, the same number of Gaussians, and a logit scale by the same rule."""
    train, _ = groups.kmeans(data)
    model = LinearGroups(data, train, PCA, 6, data.network.config.prior_components)
    assert model.prior.weight.shape == data.network.prior.weight.shape
    assert model.logit_scale in (1.0, 1.2, 1.5, 2.0, 3.0, 5.0)
    (rows, *_) = linear_models(data)
    tricks, plain = (make().images for make in rows.values())
    assert not np.allclose(tricks, plain)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kinds", [4, 3, 1])
def test_groups_without_directions(labelled, kinds):
    """Groups of one code, of equal codes, and of none if there are more groups than kinds of codes."""
    data = labelled(np.zeros(30 * 10, np.int64), limit=20)
    rows = np.arange(4 if kinds == 4 else 20) % kinds
    data.train = type(data.train)(*(part[rows] for part in data.train))
    model = LinearGroups(data, groups.kmeans(data)[0], PCA, 6, 2)
    decoded = data.decode(flat(data.train))
    for image in model.sample(None, 1.0):
        assert np.abs(decoded - image).max((1, 2, 3)).min() < 1e-3


def test_test_codes_take_the_group_of_their_neighbours(data):
    data = copy.copy(data)
    data.test = data.train.spread(40)
    train, test = groups.spectral(data)
    own = train[np.linspace(0, len(train) - 1, 40).astype(int)]
    assert (test == own).mean() > 0.8


def test_the_groups_are_the_gates_targets(trained):
    """Baselines get the groups that the capsules learned, and test images have no say in them."""
    data = EvaluationData(CapsulePoE.load(trained), samples=10)
    targets = checkpoint.newest(trained).optimizer["gate_targets"].numpy()
    assert np.array_equal(groups.spectral(data)[0], targets)
    data.test = data.test.spread(20)
    assert np.array_equal(groups.spectral(data)[0], targets)


def test_components_are_those_of_the_training_codes(data):
    known = pca_points(data.train.codes, 0)
    torch.testing.assert_close(pca_points(data.train.codes[:3], 0, fitted_to=data.train.codes), known[:3])
