"""The pseudo-likelihood against flips of every unit, with the free energy of each."""

import pytest
import torch

from capspoe.core.pseudolikelihood import pseudo_likelihood
from tiny import F64, all_visible, some_routing, tiny_layer


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("gate", ["winner", "none"])
@pytest.mark.parametrize("neurons", ["binary", "gaussian"])
def test_flips_of_every_unit(neurons, gate, routed):
    layer = tiny_layer(gate, neurons)
    x = all_visible(layer)
    c = some_routing(layer).expand(len(x), -1, -1) if routed else None
    total = torch.zeros(len(x), dtype=F64)
    for i in range(3):
        for m in range(2):
            flipped = x.clone()
            flipped[:, i, m] = 1 - x[:, i, m]
            change = layer.free_energy(flipped, c) - layer.free_energy(x, c)
            total += torch.nn.functional.logsigmoid(change)
    torch.testing.assert_close(pseudo_likelihood(layer, x, c), total.detach())


def test_grey_units_weigh_both_values(rng):
    """x log P(1) + (1 - x) log P(0), both given the other units as they are."""
    layer, x = tiny_layer(), torch.rand(5, 3, 2, generator=rng, dtype=F64)
    total = torch.zeros(5, dtype=F64)
    for i in range(3):
        for m in range(2):
            one, zero = x.clone(), x.clone()
            one[:, i, m], zero[:, i, m] = 1, 0
            logit = (layer.free_energy(zero, None) - layer.free_energy(one, None)).detach()
            log_p = torch.nn.functional.logsigmoid
            total += x[:, i, m] * log_p(logit) + (1 - x[:, i, m]) * log_p(-logit)
    torch.testing.assert_close(pseudo_likelihood(layer, x, None), total)
