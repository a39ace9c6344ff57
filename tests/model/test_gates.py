"""Which capsules are on. P(on) itself is compared with enumeration in test_layer.py."""

import pytest
import torch

from capspoe.model.gates import GATES, mask_off, place


def test_masks_and_places(rng):
    h, on = torch.randn(3, 4, 2, generator=rng), torch.tensor([2, 0, 2])
    expected = torch.zeros(3, 4, 2)
    for b, j in enumerate(on):
        expected[b, j] = h[b, j]
    assert torch.equal(mask_off(h, on), expected)
    assert torch.equal(place(h[range(3), on], on, 4), expected)
    assert mask_off(h, None) is h


def test_the_winner_survives_extreme_evidence():
    evidence, bias = torch.tensor([[1e4, 1e4 + 1, -1e4]]), torch.tensor([0.0, 0.5, 0.0])
    gate = GATES["winner"]
    on = gate.on_probability(torch.zeros(1, 3, 2), evidence, bias, 1.0)
    torch.testing.assert_close(on, torch.tensor([[1.0, 4.4817, 0.0]]) / 5.4817, atol=1e-4, rtol=0)
    assert gate.log_evidence(evidence, bias).item() == pytest.approx(1e4 + 1.5 + 0.2014, abs=1e-2)
    warm = gate.on_probability(torch.zeros(1, 3, 2), evidence, bias, 1e9)
    torch.testing.assert_close(warm, torch.full((1, 3), 1 / 3), atol=1e-4, rtol=0)


def test_only_the_winner_is_exclusive():
    assert {name: gate.exclusive for name, gate in GATES.items()} == {"winner": True, "none": False}
