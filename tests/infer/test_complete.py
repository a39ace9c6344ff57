"""Completions against the posterior by numerical integration, and what a mask means."""

import numpy as np
import pytest
import torch

from capspoe.config import preset
from capspoe.errors import InputError
from capspoe.infer.complete import Posterior, Sampler, Seen, complete, find_mask, laplace
from capspoe.infer.explain import LinearDecoder
from capspoe.model.build import build_network

F64 = torch.float64
J, N, V = 3, 2, 12


@pytest.fixture
def model():
    """Capsules with two dimensions, twelve pixels, an image of one of them, and what is seen of it."""
    rng = torch.Generator().manual_seed(4)
    linear = LinearDecoder(torch.randn(J, N + 1, V, generator=rng, dtype=F64), (1, 1, V))
    pixels = linear(torch.tensor([1]), torch.tensor([[0.6, -0.9]], dtype=F64)).flatten(1)
    mask = (torch.arange(V) < 7).to(F64)[None]
    return linear, Seen(pixels, mask)


def grid_posterior(decode, seen, variance):
    """Poses on a grid (G, N), and the log of P(v) P(seen pixels | j, v) at each, (J, G)."""
    axis = torch.linspace(-6, 6, 161, dtype=F64)
    grid = torch.cartesian_prod(axis, axis)
    logs = []
    for j in range(J):
        p = decode(torch.full((len(grid),), j), grid).flatten(1)
        error = ((p - seen.pixels) * seen.mask).square().sum(1)
        logs.append(-error / (2 * variance) - grid.square().sum(1) / 2)
    return grid, torch.stack(logs)


@torch.no_grad()
def test_draws_have_the_exact_posterior(model):
    """The real decoder is not the linear one that starts the chains, so the chains have to correct it."""
    linear, seen = model
    use = torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    sampler = Sampler(variance=0.1, evidence_weight=0.3, steps=30)
    count = 6000

    def real(capsule, v):
        return linear(capsule, v + 0.4 * torch.sin(2 * v))

    index = torch.arange(count)[None]
    drawn, capsule, probability = Posterior(linear, real, use, sampler).draw(seen, index, seed=0)
    grid, logs = grid_posterior(real, seen, sampler.variance)
    for j in range(J):
        p = torch.softmax(logs[j], 0)
        decoded = real(torch.full((len(grid),), j), grid).flatten(1)
        mean, own = p @ decoded, drawn[0][capsule[0] == j]
        assert len(own) > 300
        torch.testing.assert_close(own.mean(0), mean, atol=0.04, rtol=0)
        spread = (p @ (decoded - mean).square()).sqrt()
        torch.testing.assert_close(own.std(0), spread, atol=0.03, rtol=0)
    share = torch.bincount(capsule[0], minlength=J) / count
    torch.testing.assert_close(share.to(F64), probability[0], atol=0.02, rtol=0)


def test_the_evidence_is_the_integral_over_the_pose(model):
    linear, seen = model
    linear = LinearDecoder(0.4 * linear.affine, linear.size)  # nearly linear pixels: Laplace's approximation is close
    gaussian = laplace(linear, seen, Sampler(variance=0.3))
    _, logs = grid_posterior(linear, seen, 0.3)
    exact = torch.softmax(torch.logsumexp(logs, 1), 0)
    torch.testing.assert_close(torch.softmax(gaussian.log_evidence[0], 0), exact, atol=0.02, rtol=0)
    assert exact.max() - exact.min() > 0.1


def test_nothing_seen_gives_the_prior(model):
    linear, seen = model
    use = torch.tensor([0.7, 0.2, 0.1], dtype=F64)
    nothing = Seen(seen.pixels, 0 * seen.mask)
    drawn, capsule, probability = Posterior(linear, linear, use).draw(nothing, torch.arange(2000)[None], seed=0)
    torch.testing.assert_close(probability[0], use)
    u = torch.randn(2000, N, generator=torch.Generator().manual_seed(0), dtype=F64)
    expected = linear(torch.zeros(2000, dtype=torch.long), u).flatten(1).mean(0)
    torch.testing.assert_close(drawn[0][capsule[0] == 0].mean(0), expected, atol=0.03, rtol=0)


@pytest.fixture(scope="module")
def network():
    return build_network(preset(data="digits").replace(channels=8, layers="3x4"), (12, 10, 1)).eval()


def test_what_is_seen_stays_and_an_image_depends_on_nothing_else(network):
    images = np.random.default_rng(0).random((3, 12, 10, 1), np.float32)
    found = complete(network, images, "right", count=3, seed=5)
    assert found.images.shape == (3, 3, 12, 10, 1)
    assert found.capsule.shape == (3, 3)
    np.testing.assert_array_equal(found.images[:, :, :, :5], images[:, None, :, :5].repeat(3, 1))
    changed = images.copy()
    changed[:, :, 5:] = 0.5
    fewer = complete(network, changed[:2], "5,0,5,12", count=2, seed=5)
    np.testing.assert_allclose(fewer.images, found.images[:2, :2], atol=1e-5)
    assert not np.allclose(complete(network, images, "right", 3, seed=6).images, found.images)


def test_masks(network):
    assert find_mask("left", (4, 6)).tolist() == [[True] * 3 + [False] * 3] * 4
    assert find_mask("bottom", (4, 6))[:, 0].tolist() == [False, False, True, True]
    assert find_mask("centre", (4, 8)).sum() == 2 * 4
    assert find_mask("1,2,2,9", (4, 6)).sum() == 2 * 2
    for wrong in ("middle", "1,2,3", np.ones((5, 6), bool), np.ones((4, 6))):
        with pytest.raises(InputError, match="mask"):
            find_mask(wrong, (4, 6))
    with pytest.raises(InputError, match="masks"):
        complete(network, np.zeros((3, 12, 10, 1), np.float32), np.ones((2, 12, 10), bool))
