"""Which capsules are on. P(on) itself is compared with enumeration in test_layer.py."""

import pytest
import torch

from capspoe.errors import InputError
from capspoe.model.gates import GATES, only, place
from tiny import F64, some_routing, tiny_layer


def test_masks_and_places(rng):
    h, on = torch.randn(3, 4, 2, generator=rng), torch.tensor([2, 0, 2])
    expected = torch.zeros(3, 4, 2)
    for b, j in enumerate(on):
        expected[b, j] = h[b, j]
    assert torch.equal(only(h, on), expected)
    assert torch.equal(place(h[range(3), on], on, 4), expected)
    assert torch.equal(GATES["winner"].mask(h, on), expected)
    assert GATES["none"].mask(h, on) is h
    with pytest.raises(InputError, match="on is needed"):
        GATES["winner"].mask(h, None)


def test_the_winner_survives_extreme_evidence():
    evidence, bias = torch.tensor([[1e4, 1e4 + 1, -1e4]]), torch.tensor([0.0, 0.5, 0.0])
    gate = GATES["winner"]
    on = gate.on_probability(torch.zeros(1, 3, 2), evidence, bias, 1.0)
    torch.testing.assert_close(on, torch.tensor([[1.0, 4.4817, 0.0]]) / 5.4817, atol=1e-4, rtol=0)
    assert gate.total_evidence(evidence, bias).item() == pytest.approx(1e4 + 1.5 + 0.2014, abs=1e-2)
    warm = gate.on_probability(torch.zeros(1, 3, 2), evidence, bias, 1e9)
    torch.testing.assert_close(warm, torch.full((1, 3), 1 / 3), atol=1e-4, rtol=0)


def test_how_many_capsules_may_be_on():
    GATES["winner"].check_on(1)
    for count in (0, 2):
        GATES["none"].check_on(count)
        with pytest.raises(InputError, match=f"exactly one capsule is on in this network, not {count}"):
            GATES["winner"].check_on(count)


def test_whose_pose_counts():
    winner = torch.tensor([1, 0, 1])
    assert GATES["winner"].members(winner, 1).tolist() == [True, False, True]
    assert GATES["none"].members(winner, 1).tolist() == [True, True, True]


def votes(layer, x, c):
    """c_ij u_ij, (J, I, N): what each lower capsule adds to z."""
    return c[0, :, :, None] * torch.einsum("jinm,im->jin", layer.W, x - layer.mu)


def test_the_evidence_is_the_pooled_agreement_of_the_lower_capsules(rng):
    """|z_j|^2 is the sum over i of c_ij <u_ij, z_j>, plus <b_j, z_j>."""
    layer = tiny_layer(neurons="gaussian")
    c = some_routing(layer)
    x = torch.rand(*layer.lower, generator=rng, dtype=F64)
    z = layer.preactivation(x[None], c)[0]
    agreement = torch.einsum("jin,jn->j", votes(layer, x, c), z)
    torch.testing.assert_close(agreement + (layer.b * z).sum(-1), z.square().sum(-1))
    evidence = layer.neurons.log_partition(z).sum(-1)
    torch.testing.assert_close(evidence, z.square().sum(-1) / 2)


def test_a_block_of_lower_capsules_counts_half_of_its_agreement_with_itself(rng):
    """The evidence that a block adds to a capsule is <U, z without it> + |U|^2 / 2; routing has <U, z>."""
    layer = tiny_layer(neurons="gaussian")
    c = some_routing(layer)
    x = torch.rand(*layer.lower, generator=rng, dtype=F64)
    z = layer.preactivation(x[None], c)[0]
    block = votes(layer, x, c)[:, :2].sum(1)
    without = z - block
    added = layer.neurons.log_partition(z).sum(-1) - layer.neurons.log_partition(without).sum(-1)
    square = block.square().sum(-1)
    torch.testing.assert_close(added, (block * without).sum(-1) + square / 2)
    torch.testing.assert_close((block * z).sum(-1) - added, square / 2)
