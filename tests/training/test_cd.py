"""Gradients of contrastive divergence against autograd, enumeration and long chains."""

import pytest
import torch

from capspoe import kernels
from capspoe.config import Config
from capspoe.errors import InputError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import RoutedRBM, routed
from capspoe.training.build import capsule_update
from capspoe.training.cd import ContrastiveDivergence
from capspoe.training.update import gate_error
from tiny import F64, all_visible, some_routing, tiny_layer

GATES = pytest.mark.parametrize("gate", ["winner", "none"])
NEURONS = pytest.mark.parametrize("neurons", ["binary", "gaussian"])
X = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]], dtype=F64)


def capsules_on(layer, count):
    """Which capsules may be on: each of them with the gate, all at once without."""
    if not layer.gate.one_on:
        return [None]
    return [torch.full((count,), j) for j in range(layer.upper[0])]


def statistics(layer, x, c, on):
    """-dE/d(parameters) at the hidden means of each x, averaged over x."""
    rbm = routed(layer, c.expand(len(x), -1, -1), on)
    sums = rbm.sums()
    sums.add(x, rbm.hidden_mean(x), +1)
    return sums.total()


@GATES
@NEURONS
def test_gradients_are_autograd_of_the_energy_difference_with_c_fixed(gate, neurons, rng):
    layer = tiny_layer(gate, neurons)
    x, y = (torch.rand(7, 3, 2, generator=rng, dtype=F64) for _ in range(2))
    c = layer(x).c.detach()
    on = torch.randint(2, (7,), generator=rng) if gate == "winner" else None
    rbm = routed(layer, c, on)
    sums = rbm.sums()
    with torch.no_grad():
        sums.add(x, rbm.hidden_mean(x), +1)
        sums.add(y, rbm.hidden_mean(y), -1)
        found = sums.total()
        h = [layer.gate.mask(layer.hidden_mean(layer.preactivation(v, c)), on) for v in (x, y)]
    difference = layer.energy(y, h[1], c, on) - layer.energy(x, h[0], c, on)
    expected = torch.autograd.grad(difference.mean(), (layer.w_JNMI, layer.a, layer.b))
    torch.testing.assert_close(tuple(found), expected)


@GATES
@NEURONS
def test_expected_gradient_over_all_states_is_that_of_the_likelihood(gate, neurons):
    """Eq. 3, 16, 17 and 18: positive minus negative phase, weighted by exact probabilities."""
    layer = tiny_layer(gate, neurons)
    c, states = some_routing(layer), all_visible(layer)

    @torch.no_grad()
    def expected(visible, weights):
        """Sum of the statistics over x and the capsule that is on, weighted by their probabilities."""
        total = [0.0] * 3
        for v, weight in zip(visible, weights, strict=True):
            p_on = layer.on_probability(layer.preactivation(v[None], c), v[None])[0]
            for on in capsules_on(layer, 1):
                p = 1.0 if on is None else p_on[on[0]]
                total = [t + weight * p * g for t, g in zip(total, statistics(layer, v[None], c, on), strict=True)]
        return total

    log_weight = -layer.free_energy(states, c.expand(len(states), -1, -1))
    log_p = -layer.free_energy(X, c).squeeze() - torch.logsumexp(log_weight, 0)
    exact = torch.autograd.grad(log_p, (layer.w_JNMI, layer.a, layer.b))
    positive, negative = expected(X, torch.ones(1)), expected(states, torch.softmax(log_weight, 0).detach())
    for k in range(3):
        torch.testing.assert_close(positive[k] - negative[k], exact[k], rtol=1e-6, atol=1e-8)


@GATES
@NEURONS
def test_a_long_chain_approaches_the_gradient_of_the_likelihood(gate, neurons):
    """With drawn states and many steps, CD-k is the gradient of log P(x | on), or of log P(x) without the gate."""
    layer = tiny_layer(gate, neurons)
    c, chains, states = some_routing(layer), 10000, all_visible(layer)
    xs, cs = X.expand(chains, -1, -1), c.expand(chains, -1, -1)
    noise = Noise.for_batch(chains, dtype=F64, seed=11)
    target = torch.zeros(chains, dtype=torch.int64) if gate == "winner" else None

    def log_weight(x):
        if gate == "none":
            return -layer.free_energy(x, c.expand(len(x), -1, -1))
        return layer.log_evidence(layer.preactivation(x, c.expand(len(x), -1, -1)), x)[:, 0]

    log_p = log_weight(X)[0] - torch.logsumexp(log_weight(states), 0)
    exact = torch.autograd.grad(log_p, (layer.w_JNMI, layer.a, layer.b))
    error = {}
    for k in (1, 20):
        found = fixed_routing_gradient(layer, xs, cs, noise, k, target)
        error[k] = max((f - e).abs().max().item() for f, e in zip(found, exact, strict=True))
    assert error[20] < 0.04
    assert error[20] < error[1] / 2


@torch.no_grad()
def fixed_routing_gradient(layer, x, c, noise, k, on):
    """The phases of `ContrastiveDivergence.step` with given routing weights and drawn states."""
    rbm = routed(layer, c, on)
    sums = rbm.sums()
    h = rbm.hidden_mean(x)
    sums.add(x, h, +1)
    for step in range(k):
        drawn = rbm.sample_hidden(h, noise, 4 * step + 1)
        y, h = rbm.reconstruct(drawn, noise.uniform(4 * step + 2, *layer.lower))
    sums.add(y, h, -1)
    return sums.total()


@NEURONS
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_gate_learns_by_the_gradient_of_its_cross_entropy(neurons, temperature, rng):
    layer = tiny_layer("winner", neurons)
    x, on = torch.rand(9, 3, 2, generator=rng, dtype=F64), torch.arange(9) % 2
    c, noise = layer(x).c.detach(), Noise.for_batch(9, dtype=F64)
    without, with_loss = (
        ContrastiveDivergence(gate_loss_weight=weight).step(layer, x, noise, temperature, on)[0]
        for weight in (0.0, 3.0)
    )
    chosen = layer.on_probability(layer.preactivation(x, c), x, temperature)[torch.arange(9), on]
    expected = torch.autograd.grad(3 * chosen.log().mean(), (layer.w_JNMI, layer.a, layer.b))
    for one, other, gradient in zip(with_loss, without, expected, strict=True):
        torch.testing.assert_close(one - other, gradient)
    nearly = torch.tensor([[0.99, 0.01], [0.9995, 0.0005]], dtype=F64)
    error = gate_error(torch.tensor([0, 0]), nearly, 1.0)
    assert (error != 0).any(1).tolist() == [True, False]  # negligible errors have no gradient


@GATES
@NEURONS
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("sample_visible", [False, True])
def test_a_step_and_its_diagnostics(gate, neurons, iterations, normalize, sample_visible, rng):
    """The chain written out, over all capsules with those that are off at 0: every draw has its own stream."""
    layer = tiny_layer(gate, neurons, iterations=iterations, normalize=normalize)
    x, noise = torch.rand(9, 3, 2, generator=rng, dtype=F64), Noise.for_batch(9, dtype=F64, seed=5)
    found, info = ContrastiveDivergence(k=2, sample_visible=sample_visible).step(layer, x, noise, temperature=2.0)
    with torch.no_grad():
        c, z = layer(x)
        on = layer.on_probability(z, x, 2.0)
        chosen = noise.choose(0, on)
        mask = torch.nn.functional.one_hot(chosen, 2)[:, :, None] if gate == "winner" else 1
        first = mean = mask * layer.hidden_mean(z)
        for stream in (1, 5):
            h = mask * layer.sample_hidden(mean, noise, stream)
            y = layer.visible_mean(h, c, chosen if gate == "winner" else None)
            if sample_visible:
                y = (noise.uniform(stream + 1, 3, 2) < y).to(y)
            mean = mask * layer.hidden_mean(layer.preactivation(y, c))
        r = layer.fan * c
        w = torch.einsum("bji,bjn,bim->jnmi", r, first, x - layer.mu)
        w = w - torch.einsum("bji,bjn,bim->jnmi", r, mean, y - layer.mu)
        entropy = -(c * c.log()).sum(2 if normalize == "lower" else 1).mean() / torch.tensor(layer.fan).log()
    torch.testing.assert_close(found.w_JNMI, w / 9)
    own = mask[:, :, :, None] / 9 * (x - y)[:, None] if gate == "winner" else (x - y) / 9
    torch.testing.assert_close(found.a, own.sum(0))
    torch.testing.assert_close(found.b, (first - mean).mean(0))
    torch.testing.assert_close(info.reconstruction, (x - y).square().mean())
    torch.testing.assert_close(info.use, on.mean(0))
    torch.testing.assert_close(info.confidence, on.max(-1).values.mean())
    torch.testing.assert_close(info.routing_entropy, entropy.to(F64), check_dtype=False)


def test_hidden_states_may_hold_their_means(rng):
    layer = tiny_layer("none")
    x, noise = torch.rand(5, 3, 2, generator=rng, dtype=F64), Noise.for_batch(5, dtype=F64)
    found, _ = ContrastiveDivergence(sample_hidden=False).step(layer, x, noise)
    with torch.no_grad():
        rbm = RoutedRBM(layer, layer(x).c)
        h = rbm.hidden_mean(x)
        y, h_neg = rbm.reconstruct(h)
        sums = rbm.sums()
        sums.add(x, h, +1)
        sums.add(y, h_neg, -1)
    torch.testing.assert_close(tuple(found), tuple(sums.total()))


@NEURONS
def test_capsules_that_drop_out_of_an_image_are_0(neurons, rng):
    layer = tiny_layer("none", neurons=neurons)
    x = torch.rand(9, 3, 2, generator=rng, dtype=F64)
    noise = Noise.for_batch(9, dtype=F64)
    update = ContrastiveDivergence(k=2, sample_hidden=False, capsule_dropout=0.5)
    found, _ = update.step(layer, x, noise)
    kept = update.kept(layer(x).z, noise)
    assert 0 < kept.mean() < 1
    w = torch.zeros_like(layer.w_JNMI)
    b = torch.zeros_like(layer.b)
    with torch.no_grad():
        c = layer(x).c
        for i in range(9):
            one = slice(i, i + 1)
            mask = kept[one, :, None]
            h = first = mask * layer.hidden_mean(layer.preactivation(x[one], c[one]))
            for _ in range(2):
                y = layer.visible_mean(h, c[one])
                h = mask * layer.hidden_mean(layer.preactivation(y, c[one]))
            r = layer.fan * c[i]
            w += torch.einsum("ji,jn,im->jnmi", r, first[0], x[i] - layer.mu) / 9
            w -= torch.einsum("ji,jn,im->jnmi", r, h[0], y[0] - layer.mu) / 9
            b += (first - h)[0] / 9
    torch.testing.assert_close(found.w_JNMI, w)
    torch.testing.assert_close(found.b, b)


def test_the_setting_drops_capsules_out(rng):
    layer = tiny_layer("none")
    update = capsule_update(Config(capsule_dropout=0.3), layer, True)
    z = torch.zeros(5000, *layer.upper)
    assert update.kept(z, Noise.for_batch(5000)).mean() == pytest.approx(0.7, abs=0.02)
    assert capsule_update(Config(), layer, True).kept(z, Noise.for_batch(5000)) is None


def test_targets_train_their_capsules_alone(rng):
    layer, x = CapsuleLayer((6, 4), (3, 2), seed=1), torch.rand(5, 6, 4, generator=rng)
    update = ContrastiveDivergence(gate_loss_weight=0.0)
    found, _ = update.step(layer, x, Noise.for_batch(5), target=torch.tensor([2, 0, 2, 2, 0]))
    assert (found.w_JNMI.abs().sum((1, 2, 3)) > 0).tolist() == [True, False, True]


@GATES
@NEURONS
@pytest.mark.parametrize("targets", [False, True])
def test_the_kernels_take_the_same_step(gate, neurons, targets, rng):
    layer = CapsuleLayer((6, 4), (3, 5), gate=gate, neurons=neurons, initial_std=0.4)
    x = torch.rand(7, 6, 4, generator=rng)
    target = torch.arange(7) % 3 if targets and gate == "winner" else None
    results = []
    for backend in ("kernel", "reference"):
        with kernels.use(backend):
            update = ContrastiveDivergence(k=2, gate_loss_weight=2.0)
            results.append(update.step(layer, x, Noise.for_batch(7), 1.5, target))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(tuple(one), tuple(other), rtol=1e-4, atol=1e-5)


def test_wrong_k_is_named():
    with pytest.raises(InputError, match="k must be an integer of 1 or more"):
        ContrastiveDivergence(k=0)
