"""With one routing iteration and no gate a layer is an RBM: scikit-learn's, and our own of scalar capsules."""

import numpy as np
import pytest
import torch
from sklearn.neural_network import BernoulliRBM

from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.training.cd import ContrastiveDivergence

I, M, J, N, B = 4, 3, 5, 2, 6


class RecordedUniforms:
    """Gives scikit-learn the uniform numbers that our own step draws."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def uniform(self, size):
        draw = self.draws.pop(0)
        assert draw.shape == tuple(size)
        return draw


@pytest.fixture
def pair():
    """A capsule layer, and the RBM with the same weights on the flattened units."""
    layer = CapsuleLayer((I, M), (J, N), 1, gate="none", neurons="binary", centred=False, initial_std=0.4)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.a.copy_(torch.randn(I, M, generator=rng))
        layer.b.copy_(torch.randn(J, N, generator=rng))
    rbm = BernoulliRBM(n_components=J * N, learning_rate=0.1)
    rbm.components_ = layer.w_JNMI.detach().permute(0, 1, 3, 2).reshape(J * N, I * M).numpy().astype(float)
    rbm.intercept_visible_ = layer.a.detach().reshape(-1).numpy().astype(float)
    rbm.intercept_hidden_ = layer.b.detach().reshape(-1).numpy().astype(float)
    x = (torch.rand(B, I, M, generator=rng) < 0.5).float()
    return layer, rbm, x


def test_hidden_means_and_free_energy(pair):
    layer, rbm, x = pair
    flat = x.reshape(B, -1).numpy().astype(float)
    with torch.no_grad():
        mean = layer.hidden_mean(layer(x).z).reshape(B, -1)
        np.testing.assert_allclose(mean, rbm._mean_hiddens(flat), atol=1e-5)
        np.testing.assert_allclose(layer.free_energy(x, None), rbm._free_energy(flat), atol=1e-5)


def test_a_contrastive_update(pair):
    layer, rbm, x = pair
    noise = Noise.for_batch(B, seed=3)
    with torch.no_grad():
        h = layer.sample_hidden(layer.hidden_mean(layer(x).z), noise, 1)
    found, _ = ContrastiveDivergence(sample_visible=True).step(layer, x, noise)
    rbm.h_samples_ = h.reshape(B, -1).numpy().astype(float)
    before = rbm.components_.copy(), rbm.intercept_visible_.copy(), rbm.intercept_hidden_.copy()
    uniforms = RecordedUniforms(noise.uniform(2, I, M).reshape(B, -1).numpy(), np.ones((B, J * N)))
    rbm._fit(x.reshape(B, -1).numpy().astype(float), uniforms)
    change = rbm.components_ - before[0]
    ours = found.w_JNMI.permute(0, 1, 3, 2).reshape(J * N, I * M).numpy()
    np.testing.assert_allclose(0.1 * ours, change, atol=1e-5)
    np.testing.assert_allclose(0.1 * found.a.reshape(-1), rbm.intercept_visible_ - before[1], atol=1e-5)
    np.testing.assert_allclose(0.1 * found.b.reshape(-1), rbm.intercept_hidden_ - before[2], atol=1e-5)


def test_scalar_capsules_are_the_same_rbm(pair):
    layer, rbm, x = pair
    scalar = CapsuleLayer.rbm(I * M, J * N)
    with torch.no_grad():
        weights = torch.tensor(rbm.components_, dtype=torch.float32)
        scalar.w_JNMI.copy_(weights[:, None, None, :])
        scalar.a.copy_(layer.a.reshape(-1, 1))
        scalar.b.copy_(layer.b.reshape(-1, 1))
        x_scalar = x.reshape(B, I * M, 1)
        torch.testing.assert_close(scalar(x_scalar).z.reshape(B, J, N), layer(x).z)
        torch.testing.assert_close(scalar.free_energy(x_scalar, None), layer.free_energy(x, None))
    noise = Noise.for_batch(B, seed=8)
    ours, info = ContrastiveDivergence().step(layer, x, noise)
    theirs, info_scalar = ContrastiveDivergence().step(scalar, x_scalar, noise)
    torch.testing.assert_close(
        ours.w_JNMI.permute(0, 1, 3, 2).reshape(J * N, I * M), theirs.w_JNMI.squeeze(1).squeeze(1)
    )
    torch.testing.assert_close(info.reconstruction, info_scalar.reconstruction)
