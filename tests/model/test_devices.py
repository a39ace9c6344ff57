"""No step leaves its device. Fake tensors on another device stand for a GPU: mixing it with the CPU is an error."""

import pytest
import torch
from torch._subclasses import FakeTensorMode

from capspoe.model.gates import place
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.prior import CapsulePrior
from capspoe.model.routed import Slots
from capspoe.training.cd import ContrastiveDivergence


def moved(module):
    """Replace the tensors of a module by fake ones on another device."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            fake = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
            setattr(part, name, torch.nn.Parameter(fake, requires_grad=False))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, torch.empty(buffer.shape, dtype=buffer.dtype, device="meta"))
    return module


def devices(*tensors):
    return {tensor.device.type for tensor in tensors}


def fake_slots(capsule, capsules):
    entry = torch.zeros(capsules, len(capsule), dtype=torch.int64, device=capsule.device)
    return Slots(entry, torch.zeros_like(capsule), torch.ones(entry.shape, device=capsule.device))


@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("gate", ["winner", "none"])
def test_capsules_stay_on_their_device(gate, agreement, monkeypatch):
    # The number of slots depends on values, which fake tensors do not have.
    monkeypatch.setattr(Slots, "of", fake_slots)
    layer, prior = CapsuleLayer((12, 8), (4, 6), gate=gate, agreement=agreement), CapsulePrior(4, 6, 2)
    with FakeTensorMode():
        layer, prior = moved(layer), moved(prior)
        noise = Noise(0, 0, torch.arange(5, device="meta"))
        x, on = torch.rand(5, 12, 8, device="meta"), torch.zeros(5, dtype=torch.int64, device="meta")
        c, z = layer(x)
        assert devices(c, z, layer.on_probability(z, x), layer.visible_mean(z, c)) == {"meta"}
        update = ContrastiveDivergence(k=2, sample_visible=True, gate_loss_weight=0.0)
        gradients, info = update.step(layer, x, noise, target=on if gate == "winner" else None)
        assert devices(*gradients, *info) == {"meta"}
        layer.balance(info.use, 0.1)
        h = place(layer.hidden_mean(prior.sample(on, noise, 1.5)), on, 4)
        assert devices(layer.visible_mean(h, layer.reverse(h), on)) == {"meta"}
        assert devices(prior.to_white(on, prior.from_white(on, h[:, 0]))) == {"meta"}
