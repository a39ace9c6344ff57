"""Whitened units and back."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from capspoe.prior import CapsulePrior


def fitted(neurons=5, n=400, flat=0, seed=0):
    rng = np.random.default_rng(seed)
    mix = rng.normal(size=(neurons, neurons))
    if flat:
        mix[:, :flat] = 0
    z = rng.normal(size=(n, neurons)) @ mix.T + rng.normal(size=neurons)
    prior = CapsulePrior(2, neurons, components=1)
    prior.fit(1, z)
    return prior, torch.from_numpy(z).float()


PRIOR, _ = fitted()


@given(st.lists(st.floats(-50, 50, width=32), min_size=5, max_size=5))
def test_to_white_is_the_inverse(white):
    j, there = torch.tensor([1]), torch.tensor([white])
    torch.testing.assert_close(PRIOR.to_white(j, PRIOR.from_white(j, there)), there, atol=2e-3, rtol=1e-3)


def test_the_capsules_own_images_become_white():
    prior, z = fitted()
    white = prior.to_white(torch.ones(len(z), dtype=torch.int64), z)
    torch.testing.assert_close(white.mean(0), torch.zeros(5), atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cov(white.T, correction=0), torch.eye(5), atol=1e-3, rtol=0)


def test_directions_without_variance_count_as_zero():
    prior, z = fitted(flat=2)
    white = prior.to_white(torch.ones(len(z), dtype=torch.int64), z)
    assert bool(torch.isfinite(white).all())
    assert bool((white[:, 3:] == 0).all())
    assert float(white[:, :3].std()) > 0.9


def test_a_capsule_without_images_has_plain_units():
    prior, _ = fitted()
    z = torch.randn(1, 5)
    torch.testing.assert_close(prior.to_white(torch.tensor([0]), z), z)


def test_a_capsule_with_one_image():
    prior = CapsulePrior(1, 3, components=1)
    prior.fit(0, np.array([[1.0, 2.0, 3.0]]))
    assert prior.to_white(torch.tensor([0]), torch.tensor([[1.0, 2.0, 4.0]])).tolist() == [[0, 0, 0]]
