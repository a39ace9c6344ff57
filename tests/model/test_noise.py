"""Random numbers that belong to the image, and their distributions."""

import pytest
import torch
from scipy import stats

from capspoe.model.noise import Noise


def splitmix64(state):
    """The generator of Steele, Lea and Flood 2014, in Python's integers: the output for a state."""
    mask = (1 << 64) - 1
    z = state & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_the_hash_is_splitmix64():
    golden = 0x9E3779B97F4A7C15
    assert splitmix64(golden) == 0xE220A8397B1DCDAF  # the first output for seed 0, as published
    key, images = 0, [11, 2**40]
    for part in (-3, 7, 5):  # seed, step, stream
        key = splitmix64(key + golden + part)
    keys = [splitmix64(key + (image + 1) * golden) for image in images]
    bits = [[splitmix64(key + k * golden) for k in (1, 2, 3)] for key in keys]
    for dtype, kept in ((torch.float64, 52), (torch.float32, 23)):
        found = Noise(-3, 7, torch.tensor(images), dtype).uniform(5, 3)
        assert found.tolist() == [[((b >> (64 - kept)) + 0.5) / 2**kept for b in row] for row in bits]


def test_normal_numbers_are_box_and_mullers():
    noise = Noise.for_batch(3, dtype=torch.float64)
    u = noise.uniform(4, 2, 10)
    expected = (-2 * u[:, 0].log()).sqrt() * (2 * torch.pi * u[:, 1]).cos()
    torch.testing.assert_close(noise.normal(4, 5, 2), expected.reshape(3, 5, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distributions(dtype):
    noise = Noise.for_batch(300, seed=3, dtype=dtype)
    u = noise.uniform(0, 400)
    assert 0 < u.min() < u.max() < 1
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 0.001
    assert stats.kstest(noise.normal(1, 400).flatten().numpy(), "norm").pvalue > 0.001


def test_choose_follows_the_probabilities():
    p = torch.tensor([0.5, 0.0, 0.2, 0.3])
    chosen = Noise.for_batch(20000, seed=1).choose(0, p.expand(20000, 4))
    counts = torch.bincount(chosen, minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], p[[0, 2, 3]] * 20000).pvalue > 0.001


def test_choose_takes_nothing_impossible(monkeypatch):
    """Not even when the uniform number times the sum of the probabilities rounds to that sum."""
    monkeypatch.setattr(Noise, "uniform", lambda noise, stream: torch.ones(1))
    assert Noise.for_batch(1).choose(0, torch.tensor([[0.0, 0.5, 0.5, 0.0]])).tolist() == [2]
