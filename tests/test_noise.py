"""Noise belongs to the image, and is as random as it says."""

import pytest
import torch
from scipy import stats

from capspoe.noise import Noise


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_do_not_depend_on_how_the_batch_is_split(dtype):
    index = torch.tensor([7, 3, 123456789012, 0, 5])
    whole = Noise(seed=1, step=2, index=index, dtype=dtype)
    for draw in ("uniform", "normal"):
        all_at_once = getattr(whole, draw)(4, 3, 2)
        pieces = [getattr(Noise(1, 2, part, dtype), draw)(4, 3, 2) for part in (index[:2], index[2:])]
        assert torch.equal(all_at_once, torch.cat(pieces))


@pytest.mark.parametrize("other", [{"seed": 2}, {"step": 2}, {"seed": -1}, {"seed": 2**40}])
def test_seed_and_step_change_everything(other):
    index = torch.arange(100)
    base = Noise(seed=1, step=1, index=index).uniform(0, 50)
    changed = Noise(**({"seed": 1, "step": 1, "index": index} | other)).uniform(0, 50)
    assert (base == changed).float().mean() < 0.001
    assert abs(torch.corrcoef(torch.stack([base.flatten(), changed.flatten()]))[0, 1]) < 0.05


def test_streams_are_independent():
    noise = Noise.for_batch(200, seed=5)
    a, b = noise.uniform(0, 100).flatten(), noise.uniform(1, 100).flatten()
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.03


def test_neighbouring_images_and_positions_are_uncorrelated():
    u = Noise.for_batch(400, seed=9).uniform(0, 400)
    for left, right in ((u[1:], u[:-1]), (u[:, 1:], u[:, :-1])):
        assert abs(torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1]) < 0.012


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


def test_choose_never_leaves_the_range():
    p = torch.full((1000, 3), 1e-30)
    assert set(Noise.for_batch(1000).choose(0, p).tolist()) == {0, 1, 2}
