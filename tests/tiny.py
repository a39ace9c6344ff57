"""Layers small enough to enumerate every state, and the energy written out by hand."""

import itertools

import numpy as np
import torch

from capspoe.model.layer import CapsuleLayer

F64 = torch.float64


def tiny_layer(gate="winner", neurons="binary", bias=True, lower=(3, 2), upper=(2, 2), **options):
    layer = CapsuleLayer(
        lower, upper, gate=gate, neurons=neurons, bias=bias, initial_std=0.5, dtype=F64, seed=1, **options
    )
    rng = torch.Generator().manual_seed(2)
    with torch.no_grad():
        layer.mu.copy_(0.3 * torch.rand(layer.mu.shape, generator=rng, dtype=F64))
        if bias:
            layer.a.copy_(0.5 * torch.randn(layer.a.shape, generator=rng, dtype=F64))
            layer.b.copy_(0.5 * torch.randn(layer.b.shape, generator=rng, dtype=F64))
        layer.d.copy_(torch.linspace(-0.4, 0.4, upper[0], dtype=F64))
    return layer


def binary_states(count):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=count)), dtype=F64)


def all_visible(layer):
    I, M = layer.lower
    return binary_states(I * M).reshape(-1, I, M)


def all_hidden(layer):
    """Every hidden state as (h (S, J, N), on (S,) or None, weight (S,)).

    Gaussian neurons have a continuum of states; Gauss-Hermite nodes stand for it. Their weights undo the rule's
    exp(-t^2), so that the sum of exp(-E) times weight is the integral over h.
    """
    J, N = layer.upper
    if layer.neurons.name == "binary":
        values, weights = np.array([0.0, 1.0]), np.ones(2)
    else:
        nodes, gh = np.polynomial.hermite.hermgauss(48)
        values, weights = nodes * np.sqrt(2), gh * np.exp(nodes**2) * np.sqrt(2)
    count = N if layer.gate.one_on else J * N
    grid = torch.tensor(np.array(list(itertools.product(values, repeat=count))))
    weight = torch.tensor(np.prod(list(itertools.product(weights, repeat=count)), axis=1))
    if not layer.gate.one_on:
        return grid.reshape(-1, J, N), None, weight
    h = torch.zeros(J, len(grid), J, N, dtype=F64)
    for j in range(J):
        h[j, :, j] = grid
    on = torch.arange(J).repeat_interleave(len(grid))
    return h.reshape(-1, J, N), on, weight.repeat(J)


def energy_by_hand(layer, x, h, c, on):
    """E(x, h) for one state, written out as a sum over pairs of capsules."""
    W, mu = layer.W.detach().numpy(), layer.mu.numpy()
    a, b, d = layer.a.detach().numpy(), layer.b.detach().numpy(), layer.d.numpy()
    x, h, c = x.numpy(), h.numpy(), c.numpy()
    energy = 0.0
    for i in range(layer.lower[0]):
        energy -= a[on, i] @ (x[i] - mu[i]) if layer.gate.one_on else a[i] @ x[i]
        for j in range(layer.upper[0]):
            energy -= c[j, i] * h[j] @ W[j, i] @ (x[i] - mu[i])
    for j in range(layer.upper[0]):
        energy -= b[j] @ h[j]
    if layer.neurons.name == "gaussian":
        energy += (h**2).sum() / 2
    if layer.gate.one_on:
        energy -= d[on]
    return energy


def some_routing(layer, seed=3):
    """Routing weights (1, J, I) of some image."""
    x = torch.rand(1, *layer.lower, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return layer(x).c.detach()
