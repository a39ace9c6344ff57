"""log Z and likelihoods against the sum over every state."""

import itertools

import numpy as np
import pytest
import torch

from capspoe.errors import InputError
from capspoe.infer.chains import PoseDensity
from capspoe.infer.likelihood import log_integrals, log_partition, log_weight, score
from capspoe.infer.rbm import log_partition_rbm
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.pixels import Pixels
from capspoe.model.prior import CapsulePrior

F64 = torch.float64


@torch.no_grad()
@pytest.mark.parametrize("std", [0.3, 1.0, 4.0])  # the last has modes that are far apart
def test_both_estimates_meet_at_the_sum_over_all_states(std):
    layer = CapsuleLayer((3, 2), (2, 2), initial_std=std, seed=1, dtype=F64)
    rng = torch.Generator().manual_seed(2)
    for part in (layer.mu, layer.a, layer.b, layer.d):
        part.copy_(0.5 * torch.randn(part.shape, generator=rng, dtype=F64))
    layer.mean_routing.copy_(0.5 + torch.rand(2, 3, generator=rng, dtype=F64))
    prior = CapsulePrior(2, 2, 1).double()
    prior.centre.copy_(torch.randn(2, 2, generator=rng))
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64).reshape(-1, 3, 2)
    exact = torch.logsumexp(log_weight(layer, states), 0).item()
    found = log_partition(layer, prior)
    assert found.lower == pytest.approx(exact, abs=0.05)
    assert found.upper == pytest.approx(exact, abs=0.05)


@torch.no_grad()
@pytest.mark.parametrize("std", [0.3, 1.5])
def test_an_rbm_is_summed_over_all_states(std):
    layer = CapsuleLayer((3, 2), (2, 2), gate="none", neurons="binary", initial_std=std, seed=1, dtype=F64)
    rng = torch.Generator().manual_seed(3)
    for part in (layer.mu, layer.a, layer.b):
        part.copy_(0.5 * torch.randn(part.shape, generator=rng, dtype=F64))
    layer.mean_routing.copy_(0.5 + torch.rand(2, 3, generator=rng, dtype=F64))
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64).reshape(-1, 3, 2)
    exact = torch.logsumexp(log_weight(layer, states), 0).item()
    bounds = log_partition_rbm(layer, steps=200)
    assert bounds.lower == pytest.approx(exact, abs=0.05)
    assert bounds.upper == pytest.approx(exact, abs=0.05)


def test_scores_of_pixels_are_probabilities_of_images():
    """Over all images of 2 x 3 pixels they sum to 1."""
    layer = CapsuleLayer((6, 1), (2, 2), iterations=1, initial_std=0.8, seed=1)
    network = Network(Pixels((2, 3, 1), patch=1), [layer]).eval()
    images = np.array(list(itertools.product([0, 255], repeat=6)), np.uint8).reshape(-1, 2, 3, 1)
    scores = score(network, images)
    assert not scores.pixels.any()
    assert np.exp(scores.total).sum() == pytest.approx(1, abs=0.05)


def test_other_layers_have_no_such_likelihood():
    for options in ({"gate": "none"}, {"neurons": "binary"}):
        with pytest.raises(InputError, match="gaussian neurons"):
            log_partition(CapsuleLayer((3, 2), (2, 2), **options), CapsulePrior(2, 2, 1))


@torch.no_grad()
def test_a_mode_far_from_all_poses_counts():
    """Forty units that no pose reaches add up to most of the integral; the exact one is a sum over a fine grid."""
    layer = CapsuleLayer((44, 1), (1, 1), iterations=1, dtype=F64)
    layer.w_JNMI[:] = torch.tensor([0.5] * 4 + [0.6] * 40, dtype=F64)
    layer.a[:] = torch.tensor([0.0] * 4 + [-6.0] * 40, dtype=F64)[:, None]
    layer.mu[:4] = 0.5
    h = torch.linspace(-20, 60, 400_001, dtype=F64)
    exact = torch.logsumexp(PoseDensity.of(layer).log_density(h[None, :, None]), 1) + (h[1] - h[0]).log()
    low, high = log_integrals(layer, CapsulePrior(1, 1, 1).double())
    assert low.item() == pytest.approx(exact.item(), abs=0.5)
    assert high.item() == pytest.approx(exact.item(), abs=0.5)
