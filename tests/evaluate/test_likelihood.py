"""Annealed importance sampling against the sum over every state."""

import numpy as np
import pytest
import torch

from capspoe.evaluate.likelihood import (
    anneal_down,
    anneal_up,
    fields,
    freeze,
    gibbs,
    log_weight,
    log_z,
    log_z_base,
)
from tiny import all_visible, some_routing, tiny_layer

KINDS = [(g, n) for g in ("winner", "none") for n in ("binary", "gaussian")]


def strong(gate, neurons):
    """A tiny layer with couplings strong enough that its units are far from independent."""
    layer = tiny_layer(gate, neurons)
    with torch.no_grad():
        layer.w_JNMI.mul_(1.5)
    return layer, some_routing(layer)


@pytest.mark.parametrize(("gate", "neurons"), KINDS)
def test_unnormalised_probability_is_the_layers_free_energy(gate, neurons):
    layer, c = strong(gate, neurons)
    x = all_visible(layer)
    m = freeze(layer, c)
    expected = -layer.free_energy(x, c.expand(len(x), -1, -1))
    flat = x.flatten(1)
    np.testing.assert_allclose(log_weight(m, flat, fields(m, flat), 1.0), expected.detach(), rtol=1e-10)


@pytest.mark.parametrize(("gate", "neurons"), KINDS)
def test_log_z_of_the_start_is_exact(gate, neurons):
    layer, c = strong(gate, neurons)
    m, x = freeze(layer, c, torch.rand(3, 2, dtype=torch.float64)), all_visible(layer).flatten(1)
    counted = torch.logsumexp(log_weight(m, x, fields(m, x), 0.0), 0)
    assert log_z_base(m) == pytest.approx(float(counted))


@pytest.mark.parametrize("t", [0.4, 1.0])
@pytest.mark.parametrize(("gate", "neurons"), KINDS)
def test_a_gibbs_step_leaves_the_distribution_as_it_is(gate, neurons, t):
    layer, c = strong(gate, neurons)
    m, x = freeze(layer, c), all_visible(layer).flatten(1)
    p = torch.softmax(log_weight(m, x, fields(m, x), t), 0)
    rng = torch.Generator().manual_seed(0)
    drawn = x[torch.multinomial(p, 100_000, replacement=True, generator=rng)]
    after = gibbs(m, fields(m, drawn), t, rng)
    place = (after @ (2.0 ** torch.arange(5, -1, -1, dtype=torch.float64))).long()
    found = torch.bincount(place, minlength=64) / len(after)
    assert float((found - p).abs().max()) < 5 * float((p.max() / len(after)).sqrt())


@pytest.mark.parametrize(("gate", "neurons"), KINDS)
def test_both_directions_meet_at_the_counted_value(gate, neurons):
    layer, c = strong(gate, neurons)
    m, x = freeze(layer, c), all_visible(layer).flatten(1)
    said = log_weight(m, x, fields(m, x), 1.0)
    exact = float(torch.logsumexp(said, 0))
    rng = torch.Generator().manual_seed(2)
    start = x[torch.multinomial(torch.softmax(said, 0), 5000, replacement=True, generator=rng)]
    bracket = log_z(m, start, steps=60, chains=1500, warm=2, seed=0)
    assert bracket.lower == pytest.approx(exact, abs=0.04)
    assert bracket.upper == pytest.approx(exact, abs=0.04)
    assert bracket.near_data == pytest.approx(exact, abs=0.04)


@pytest.mark.parametrize(("gate", "neurons"), KINDS)
def test_too_few_steps_err_on_the_side_they_should(gate, neurons):
    """Means of log weights: below log Z going up, above it coming down from exact samples."""
    layer, c = strong(gate, neurons)
    m, x = freeze(layer, c), all_visible(layer).flatten(1)
    said = log_weight(m, x, fields(m, x), 1.0)
    exact = float(torch.logsumexp(said, 0))
    rng = torch.Generator().manual_seed(1)
    start = x[torch.multinomial(torch.softmax(said, 0), 4000, replacement=True, generator=rng)]
    lower = log_z_base(m) + float(anneal_up(m, 2, 4000, rng)[0].mean())
    upper = log_z_base(m) - float(anneal_down(m, 2, start, rng).mean())
    assert lower < exact - 0.02
    assert upper > exact + 0.02
