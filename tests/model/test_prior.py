"""The fitted prior against the points it was fitted to, and whitening and its inverse."""

import numpy as np
import pytest
import torch

from capspoe.model.noise import Noise
from capspoe.model.prior import CapsulePrior


def cloud(flat=0, n=400, neurons=5):
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(neurons, neurons))
    mix[:, :flat] = 0
    return rng.normal(size=(n, neurons)) @ mix.T + rng.normal(size=neurons)


def fitted(z, components=1):
    prior = CapsulePrior(2, z.shape[1], components)
    prior.fit(1, z)
    return prior


def ones(n):
    return torch.ones(n, dtype=torch.int64)


def test_samples_have_the_distribution_of_the_points():
    rng = np.random.default_rng(0)
    left, right = rng.normal([5, 0, 0], 0.5, (3000, 3)), rng.normal([-5, 1, 0], [1, 0.1, 2], (1000, 3))
    points = np.concatenate([left, right])
    prior = fitted(points, components=2)
    z = prior.sample(ones(20000), Noise.for_batch(20000)).numpy()
    assert (z[:, 0] > 0).mean() == pytest.approx(0.75, abs=0.02)
    for part, own in ((z[z[:, 0] > 0], left), (z[z[:, 0] < 0], right), (z, points)):
        np.testing.assert_allclose(part.mean(0), own.mean(0), atol=0.15)
        np.testing.assert_allclose(np.cov(part.T), np.cov(own.T), rtol=0.08, atol=0.2)
    means, wide = (prior.sample(ones(50), Noise.for_batch(50), scale) for scale in (0.0, 2.0))
    component = Noise.for_batch(50).choose(101, prior.weight[1].expand(50, -1))
    torch.testing.assert_close(means, prior.mean[1, component])
    deviation = prior.factor[1, component] @ Noise.for_batch(50).normal(102, 3)[..., None]
    torch.testing.assert_close(wide, means + 2 * deviation[..., 0])


def test_the_principal_axes():
    z = cloud()
    prior = fitted(z)
    axes = prior.axes[1].double().numpy()
    np.testing.assert_allclose(prior.centre[1], z.mean(0), atol=1e-5)
    np.testing.assert_allclose(axes @ axes.T, np.cov(z.T, bias=True), atol=1e-4)
    lengths = np.linalg.norm(axes, axis=0)
    np.testing.assert_allclose(axes.T @ axes, np.diag(lengths**2), atol=1e-4)
    assert (np.diff(lengths) <= 0).all()
    assert (axes[np.abs(axes).argmax(0), range(5)] > 0).all()


def test_whitening_and_back():
    z = torch.from_numpy(cloud()).float()
    prior = fitted(z.numpy())
    white = prior.to_white(ones(len(z)), z)
    torch.testing.assert_close(white.mean(0), torch.zeros(5), atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cov(white.T, correction=0), torch.eye(5), atol=1e-3, rtol=0)
    torch.testing.assert_close(prior.from_white(ones(len(z)), white), z, atol=1e-3, rtol=1e-3)


def test_axes_without_variance_are_zero_when_whitened():
    z = torch.from_numpy(cloud(flat=2)).float()
    white = fitted(z.numpy()).to_white(ones(len(z)), z)
    assert bool((white[:, 3:] == 0).all())
    assert float(white[:, :3].std()) > 0.9


def test_a_capsule_without_images_keeps_the_standard_prior():
    prior = fitted(cloud())
    prior.fit(0, np.empty((0, 5)))
    z = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(prior.to_white(torch.zeros(3, dtype=torch.int64), z), z)
    drawn = prior.sample(torch.zeros(5000, dtype=torch.int64), Noise.for_batch(5000))
    torch.testing.assert_close(drawn.std(0), torch.ones(5), atol=0.05, rtol=0)


@pytest.mark.parametrize("points", [np.full((1, 4), 2.0), np.full((60, 4), 2.0), np.eye(4)[:2]])
def test_few_or_equal_images(points):
    """They make a prior that is near them: a component needs several images for each dimension."""
    prior = fitted(points, components=8)
    z = prior.sample(ones(200), Noise.for_batch(200)).numpy()
    np.testing.assert_allclose(z.mean(0), points.mean(0), atol=0.1)
    assert (z.std(0) < points.std(0) + 0.05).all()
    assert torch.isfinite(prior.to_white(ones(1), torch.zeros(1, 4))).all()
    assert (prior.weight[1] > 0).sum() == max(1, min(8, len(points) // (5 * 4)))
