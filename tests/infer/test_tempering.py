"""Parallel tempering against every state enumerated, and against sums over a grid."""

import itertools

import pytest
import torch

from capspoe.infer.chains import PoseDensity, hmc
from capspoe.infer.likelihood import LogZ, log_weight
from capspoe.infer.tempering import LEAPS, WIDER, Ladder, sweep
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from tiny import F64, all_visible

CHAINS = 400
STEPS = 201  # exchanges are due in the last


@pytest.fixture(scope="module")
def layer():
    """Two capsules with two modes each, 15 nats above what lies between; the modes are not equally probable."""
    made = CapsuleLayer((3, 2), (2, 2), iterations=1, initial_std=0.3, seed=1, dtype=F64)
    with torch.no_grad():
        made.mu.fill_(0.5)
        made.w_JNMI[:, 0] += torch.tensor([2.0, -2.0], dtype=F64)[:, None]
        made.b.copy_(torch.tensor([[-0.05, 0.1], [0.04, -0.2]]))
        made.d.copy_(torch.tensor([0.3, -0.3]))
    return made


def noise_at(step, rows=2 * CHAINS):
    return Noise(0, step, torch.arange(rows), F64)


def in_one_mode():
    return torch.tensor([6.0, 0.0], dtype=F64).repeat(2, CHAINS, 1)


@pytest.fixture(scope="module")
def tempered(layer):
    """Chains that all start in one mode, and their ladder, after some steps."""
    p = PoseDensity.of(layer)
    h = in_one_mode()
    ladder = Ladder.begin(torch.zeros(2, 2, dtype=F64), 16 * torch.eye(2, dtype=F64).repeat(2, 1, 1), noise_at(-1))
    for step in range(STEPS):
        h = hmc(p, h, noise_at(step), LEAPS).h
        h = ladder.step(p, h, noise_at(step))
    return h, ladder


def on_a_grid(p):
    """Points (2, G, 2), and their probabilities (2, G)."""
    axis = torch.linspace(-14, 14, 281, dtype=F64)
    grid = torch.cartesian_prod(axis, axis).expand(2, -1, -1)
    return grid, torch.softmax(p.log_density(grid), -1)


@torch.no_grad()
def test_tempered_chains_have_the_exact_law(layer, tempered):
    """Moments of the poses, where chains of their own stay near where they started."""
    p = PoseDensity.of(layer)
    grid, probability = on_a_grid(p)
    mean = torch.einsum("jg,jgn->jn", probability, grid)
    variance = torch.einsum("jg,jgn->jn", probability, grid.square()) - mean.square()
    h, _ = tempered
    error = 5 * (variance / CHAINS).sqrt()
    assert ((h.mean(1) - mean).abs() < error).all()
    torch.testing.assert_close(h.var(1), variance, rtol=0.25, atol=0.1)
    alone = in_one_mode()
    for step in range(STEPS):
        alone = hmc(p, alone, noise_at(step), LEAPS).h
    assert ((alone.mean(1) - mean).abs() > error)[:, 0].all()


@torch.no_grad()
def test_both_estimates_meet_at_the_sum_over_all_states(layer, tempered):
    exact = torch.logsumexp(log_weight(layer, all_visible(layer)), 0).item()
    _, ladder = tempered
    log_z = LogZ.of(layer, ladder.lower, ladder.upper)
    assert log_z.lower == pytest.approx(exact, abs=0.1)
    assert log_z.upper == pytest.approx(exact, abs=0.1)


def test_exchanges_keep_the_law_and_are_reversible():
    """Three levels over three states: every joint state, from its exact law."""
    rows = 400_000
    log_q, log_p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], dtype=F64).log()
    levels = [torch.softmax((1 - t) * log_q + t * log_p, 0) for t in (0, 0.5, 1)]
    joint = list(itertools.product(range(3), repeat=3))
    probability = torch.tensor([levels[0][a] * levels[1][b] * levels[2][c] for a, b, c in joint], dtype=F64)
    start = noise_at(0, rows).choose(1, probability.expand(rows, -1))
    states = torch.tensor(joint)[start].T[:, None]  # (3, 1, rows)
    made = sweep((log_p - log_q)[states], noise_at(1, rows))
    after = states.gather(0, made.order)
    number = (after * torch.tensor([9, 3, 1])[:, None, None]).sum(0)[0]
    share = torch.bincount(number, minlength=27).double() / rows
    torch.testing.assert_close(share, probability, atol=0.004, rtol=0)
    # Between two levels the flows between any two joint states are equal.
    two = sweep((log_p - log_q)[states[::2]], noise_at(2, rows))
    moved = states[::2].gather(0, two.order)
    flow = torch.zeros(9, 9, dtype=F64)
    pair = torch.tensor([3, 1])[:, None]
    flow.index_put_(((states[::2, 0] * pair).sum(0), (moved[:, 0] * pair).sum(0)), torch.ones(rows, dtype=F64), True)
    torch.testing.assert_close(flow / rows, flow.T / rows, atol=0.003, rtol=0)
    assert 0.1 < float(two.accepted[0]) < 1


@torch.no_grad()
def test_the_gaussian_is_drawn_anew_in_each_turn(layer):
    """What starts there has forgotten everything: independent draws with its mean and covariance."""
    p = PoseDensity.of(layer)
    mean = torch.tensor([[1.0, -1.0], [0.0, 2.0]], dtype=F64)
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=F64).repeat(2, 1, 1)
    ladder = Ladder.begin(mean, covariance, noise_at(-1))
    draws = []
    for turn in range(20):
        ladder.move(0, p, ladder.reference(), noise_at(1 + 2 * turn))
        draws.append(ladder.h[0].clone())
    for j in range(2):
        own = torch.stack([h[j] for h in draws])
        together = own.flatten(0, 1)
        torch.testing.assert_close(together.mean(0), mean[j], atol=0.08, rtol=0)
        torch.testing.assert_close(torch.cov(together.T), WIDER * covariance[j], atol=0.15, rtol=0)
        correlation = torch.corrcoef(torch.stack([own[:-1, :, 0].flatten(), own[1:, :, 0].flatten()]))[0, 1]
        assert correlation.abs() < 0.05


def test_the_ratio_of_integrals_is_exact_for_a_constant_difference():
    made = sweep(torch.full((5, 2, 7), 3.0), noise_at(0, 14))
    torch.testing.assert_close(made.lower, torch.full((2,), 3.0, dtype=F64))
    torch.testing.assert_close(made.upper, torch.full((2,), 3.0, dtype=F64))
