"""Chains in a capsule's pose: the density by enumeration, the law of a chain, and the gradient that chains give."""

import itertools

import pytest
import torch

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.infer.chains import PoseDensity, hmc, run_chains, split_r_hat
from capspoe.infer.likelihood import log_weight
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.training.pcd import SCORED, PersistentChains, mean_log_weight

F64 = torch.float64


@pytest.fixture
def layer():
    """Two capsules of two gaussian neurons over six visible units, with routing weights that are not uniform."""
    made = CapsuleLayer((3, 2), (2, 2), iterations=1, initial_std=0.7, seed=1, dtype=F64)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for part in (made.a, made.b, made.mu):
            part.copy_(0.5 * torch.randn(part.shape, generator=rng, dtype=F64))
        made.d.copy_(torch.tensor([0.3, -0.3]))
        made.mean_routing.copy_(0.5 + torch.rand(2, 3, generator=rng, dtype=F64))
    return made


def states(layer):
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64).view(-1, *layer.lower)


@torch.no_grad()
def test_the_density_sums_over_all_codes(layer):
    h = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    x, c = states(layer), layer.mean_routing / layer.fan
    layer.iterations = 3  # so that c counts
    found = PoseDensity.of(layer).log_density(h)
    for j, k in itertools.product(range(2), range(5)):
        pose = torch.zeros(len(x), 2, 2, dtype=F64)
        pose[:, j] = h[j, k]
        on = torch.full((len(x),), j)
        exact = torch.logsumexp(-layer.energy(x, pose, c.expand(len(x), -1, -1), on), 0)
        constant = layer.d[j] - (layer.a[j] * layer.mu).sum()
        torch.testing.assert_close(found[j, k] + constant, exact)


def test_the_gradient_is_that_of_autograd(layer):
    h = torch.randn(2, 5, 2, generator=torch.Generator().manual_seed(1), dtype=F64, requires_grad=True)
    density = PoseDensity.of(layer)
    expected = torch.autograd.grad(density.log_density(h).sum(), h)[0]
    torch.testing.assert_close(density.gradient(h.detach()), expected)


def moved(density, h):
    for step in range(40):
        h, accepted = hmc(density, h, Noise(0, step, torch.arange(4000), F64), leaps=4)
    assert 0.8 < accepted.double().mean() <= 1
    return h


@torch.no_grad()
def test_a_chain_has_the_exact_law(layer):
    """Mean and covariance of each capsule's poses, by a sum over a grid."""
    density = PoseDensity.of(layer)
    h = moved(density, torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(3), dtype=F64))
    axis = torch.linspace(-9, 9, 181, dtype=F64)
    grid = torch.cartesian_prod(axis, axis).expand(2, -1, -1)
    p = torch.softmax(density.log_density(grid), -1)
    mean = torch.einsum("jg,jgn->jn", p, grid)
    torch.testing.assert_close(h.mean(1), mean, atol=0.1, rtol=0)
    for j in range(2):
        off = grid[j] - mean[j]
        covariance = torch.einsum("g,gn,gm->nm", p[j], off, off)
        torch.testing.assert_close(torch.cov(h[j].T), covariance, atol=0.2, rtol=0.05)


@torch.no_grad()
@pytest.mark.parametrize("leaps", [1, 4])  # a single one shows a wrong momentum best
def test_a_transition_leaves_the_law_as_it_is(layer, leaps):
    """From 200,000 draws of the law, by a grid, no average changes by more than chance."""
    density = PoseDensity.of(layer)
    axis = torch.linspace(-20, 20, 401, dtype=F64)
    grid = torch.cartesian_prod(axis, axis).expand(2, -1, -1)
    probability = torch.softmax(density.log_density(grid), -1)
    rng = torch.Generator().manual_seed(4)
    start = torch.stack([grid[j, torch.multinomial(probability[j], 100_000, True, generator=rng)] for j in range(2)])
    start = start + 0.1 * (torch.rand(start.shape, generator=rng, dtype=F64) - 0.5)
    h, accepted = hmc(density, start, Noise(0, 0, torch.arange(200_000), F64), leaps)
    assert 0.5 < accepted.double().mean() < 0.99
    for average in (density.log_density, lambda h: h[..., 0], lambda h: h[..., 1], lambda h: h.square().sum(-1)):
        change = average(h) - average(start)
        assert (change.mean(1).abs() < 4 * change.std(1) / 100_000**0.5).all()


@torch.no_grad()
@pytest.mark.parametrize("iterations", [1, 3])
def test_the_persistent_gradient_approaches_the_exact_one(layer, iterations, monkeypatch):
    """The chains' averages against sums over all codes of each capsule; with routing, by its mean weights."""
    layer.iterations = iterations
    if iterations == 1:
        layer.mean_routing.fill_(1)
    monkeypatch.setattr(layer, "follow_routing", lambda c, on: None)
    update = PersistentChains(layer, 2000)
    update.h_JCN = moved(PoseDensity.of(layer), update.h_JCN)
    x = torch.bernoulli(torch.full((64, 3, 2), 0.5, dtype=F64), generator=torch.Generator().manual_seed(2))
    on = torch.arange(64) % 2
    update.gate_loss_weight = 0.0
    found, _ = update.step(layer, x, Noise.for_batch(64, dtype=F64), target=on)

    def preactivation(x):
        return layer.preactivation(x, (layer.mean_routing / layer.fan).expand(len(x), -1, -1))

    every = states(layer)
    z = preactivation(every)
    for j in range(2):
        p = torch.softmax(layer.log_evidence(z, every)[:, j], 0)  # P(x | capsule j is on)
        own = x[on == j]
        data = torch.einsum("bn,bim->nmi", preactivation(own)[:, j], own - layer.mu) / 64
        model = torch.einsum("s,sn,sim->nmi", p, z[:, j], every - layer.mu) / 2
        exact = (data - model) * layer.mean_routing[j]
        torch.testing.assert_close(found.w_JNMI[j], exact, atol=0.05, rtol=0)
        visible = (own - layer.mu).sum(0) / 64 - torch.einsum("s,sim->im", p, every - layer.mu) / 2
        torch.testing.assert_close(found.a[j], visible, atol=0.03, rtol=0)
        exact = preactivation(own)[:, j].sum(0) / 64 - p @ z[:, j] / 2
        torch.testing.assert_close(found.b[j], exact, atol=0.05, rtol=0)


@torch.no_grad()
def test_a_code_counts_by_the_mean_of_its_drawn_states(layer):
    """log P of the states, weighted with the code's probabilities: by a sum over all of them."""
    code = torch.rand(1, 3, 2, generator=torch.Generator().manual_seed(5), dtype=F64)
    every = states(layer)
    probability = torch.where(every == 1, code, 1 - code).prod(-1).prod(-1)
    exact = (probability * log_weight(layer, every)).sum()
    noise = Noise(0, 0, SCORED * torch.arange(20_000), F64)
    drawn = mean_log_weight(layer, code.expand(20_000, -1, -1), noise)
    torch.testing.assert_close(drawn, exact, atol=0.05, rtol=0)
    # The mean code itself would be less likely.
    assert log_weight(layer, code) < exact - 0.2


def test_the_kernels_give_the_same_step():
    x, target = torch.rand(11, 9, 4, generator=torch.Generator().manual_seed(0)), torch.arange(11) % 3
    layers, updates, results = [], [], []
    for name in ("kernel", "reference"):
        layers.append(CapsuleLayer((9, 4), (3, 5), seed=2))
        updates.append(PersistentChains(layers[-1], 7, gate_loss_weight=2.0))
        with kernels.use(name):
            results.append(updates[-1].step(layers[-1], x, Noise.for_batch(11), target=target))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(tuple(one), tuple(other), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(updates[0].h_JCN, updates[1].h_JCN)
    torch.testing.assert_close(layers[0].mean_routing, layers[1].mean_routing)
    assert not torch.equal(layers[0].mean_routing, torch.ones(3, 9))


def test_r_hat_tells_chains_that_have_not_met():
    rng = torch.Generator().manual_seed(0)
    together = torch.randn(400, 2, 6, 3, generator=rng)
    apart = together + torch.arange(6.0)[:, None]
    assert (split_r_hat(together) < 1.02).all()
    assert (split_r_hat(apart) > 1.5).all()


@pytest.mark.parametrize("options", [{"neurons": "binary"}, {"gate": "none"}])
def test_only_gaussian_capsules_with_the_gate_have_a_density(options):
    assert PoseDensity.exists(CapsuleLayer((3, 2), (2, 2)))
    layer = CapsuleLayer((3, 2), (2, 2), **options)
    assert not PoseDensity.exists(layer)
    with pytest.raises(InputError, match="need the gate and gaussian neurons"):
        PoseDensity.of(layer)


@torch.no_grad()
def test_a_trace_has_every_state(layer):
    """The same as transitions one by one; its draws have the moments of the density."""
    density = PoseDensity.of(layer)
    start = torch.zeros(2, 64, 2, dtype=F64)
    trace = run_chains(density, start, steps=60, leaps=4, seed=5)
    h = start
    for step in range(3):
        moved = hmc(density, h, Noise.for_batch(128, 5, 1 + step, F64), 4)
        h = moved.h
        assert torch.equal(trace.h[step], h)
        assert torch.equal(trace.accepted[step], moved.accepted)
        assert torch.equal(trace.log_density[step], density.log_density(h))
    assert torch.equal(trace.after(10).r_hat(), split_r_hat(trace.h[10:]))
    assert trace.after(10).r_hat().max() < 1.1
