"""Annealed importance sampling against the sum over every state."""

import itertools

import numpy as np
import pytest
import torch

from capspoe.core.layer import CapsuleLayer
from capspoe.evaluate.likelihood import Annealed, freeze, likelihood, log_z

F64 = torch.float64
STATES = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64).reshape(-1, 3, 2)
kinds = pytest.mark.parametrize(
    ("gate", "neurons"), [(g, n) for g in ("winner", "none") for n in ("binary", "gaussian")]
)


def layer_and_routing(gate, neurons):
    """Six visible units and two capsules, coupled strongly; unequal routing weights."""
    rng = torch.Generator().manual_seed(2)
    layer = CapsuleLayer((3, 2), (2, 2), gate=gate, neurons=neurons, initial_std=0.75, seed=1, dtype=F64)
    with torch.no_grad():
        layer.mu.copy_(0.3 * torch.rand(3, 2, generator=rng, dtype=F64))
        layer.a.copy_(0.5 * torch.randn(layer.a.shape, generator=rng, dtype=F64))
        layer.b.copy_(0.5 * torch.randn(2, 2, generator=rng, dtype=F64))
        layer.d.copy_(torch.tensor([-0.4, 0.4]))
    return layer, torch.softmax(torch.randn(2, 3, generator=rng, dtype=F64), -1)


def annealed(gate, neurons):
    layer, c = layer_and_routing(gate, neurons)
    return Annealed(freeze(layer, c), torch.linspace(-0.5, 0.5, 6, dtype=F64).reshape(3, 2))


def log_weights(m, t):
    return m.log_weight(STATES, m.layer.preactivation(STATES, None), t)


def exact_samples(m, t, count):
    rng = torch.Generator().manual_seed(0)
    chosen = torch.multinomial(torch.softmax(log_weights(m, t), 0), count, replacement=True, generator=rng)
    return STATES[chosen], rng


@kinds
def test_a_frozen_layer_has_the_free_energy_of_its_routing(gate, neurons):
    layer, c = layer_and_routing(gate, neurons)
    expected = -layer.free_energy(STATES, c.expand(len(STATES), -1, -1))
    m = Annealed(freeze(layer, c), torch.zeros(3, 2, dtype=F64))
    np.testing.assert_allclose(log_weights(m, 1.0), expected.detach(), rtol=1e-10)


@kinds
def test_log_z_of_independent_units_is_exact(gate, neurons):
    m = annealed(gate, neurons)
    assert m.log_z_base() == pytest.approx(float(torch.logsumexp(log_weights(m, 0.0), 0)))


@kinds
@pytest.mark.parametrize("t", [0.4, 1.0])
def test_a_gibbs_step_leaves_the_distribution_invariant(gate, neurons, t):
    m = annealed(gate, neurons)
    x, rng = exact_samples(m, t, 100_000)
    after = m.gibbs(x, m.layer.preactivation(x, None), t, rng).flatten(1)
    number = (after @ (2.0 ** torch.arange(5, -1, -1, dtype=F64))).long()
    found, p = torch.bincount(number, minlength=64) / len(after), torch.softmax(log_weights(m, t), 0)
    assert float((found - p).abs().max()) < 5 * float((p.max() / len(after)).sqrt())


@kinds
def test_both_directions_meet_at_the_exact_value(gate, neurons):
    m = annealed(gate, neurons)
    exact = float(torch.logsumexp(log_weights(m, 1.0), 0))
    found = log_z(m, exact_samples(m, 1.0, 5000)[0], steps=60, chains=1500, warm=2)
    assert found == pytest.approx(dict.fromkeys(("lower", "upper", "near_data"), exact), abs=0.05)


def test_independent_units_have_their_entropy(data, monkeypatch):
    """Codes of fair bits: V units have V log 2 nats, and the trained layer knows nothing better."""
    half = data.train._replace(codes=np.full_like(data.train.codes, 0.5))
    monkeypatch.setattr(data, "train", half)
    monkeypatch.setattr(data, "test", half)
    found = likelihood(data, steps=40, chains=10)
    assert found["units"] == data.train.codes[0].size
    assert found["log_p_independent"] == pytest.approx(-found["units"] * np.log(2), rel=0.01)
    assert found["log_p_upper"] < found["log_p_independent"]
