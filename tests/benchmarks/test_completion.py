"""The clamped chain against conditionals by enumeration."""

import itertools

import torch
from benchmarks.quality.completion import clamped_step

from capspoe.infer.likelihood import log_weight
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise

F64 = torch.float64


@torch.no_grad()
def test_a_clamped_chain_has_the_exact_conditional():
    layer = CapsuleLayer((3, 2), (2, 2), initial_std=0.7, seed=1, dtype=F64)
    rng = torch.Generator().manual_seed(2)
    for part in (layer.mu, layer.a, layer.b, layer.d):
        part.copy_(0.5 * torch.randn(part.shape, generator=rng, dtype=F64))
    layer.mean_routing.copy_(0.5 + torch.rand(2, 3, generator=rng, dtype=F64))
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64).view(-1, 3, 2)
    clamped = torch.zeros(3, 2, dtype=torch.bool)
    clamped[0] = True
    value = torch.tensor([1.0, 0.0], dtype=F64)
    own = (states[:, 0] == value).all(1)
    p = torch.softmax(log_weight(layer, states[own]), 0)
    x = torch.zeros(20_000, 3, 2, dtype=F64)
    x[:, 0] = value
    for step in range(40):
        x, _ = clamped_step(layer, x, clamped, Noise(0, step, torch.arange(len(x)), F64))
    number = (x[:, 1:].flatten(1) @ torch.tensor([8.0, 4, 2, 1], dtype=F64)).long()
    share = torch.bincount(number, minlength=16) / len(x)
    torch.testing.assert_close(share.to(F64), p, atol=0.012, rtol=0)
    assert (x[:, 0] == value).all()
