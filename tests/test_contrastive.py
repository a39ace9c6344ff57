"""Gradients against autograd, exact counts and long chains."""

import pytest
import torch

from capspoe import contrastive
from capspoe.contrastive import Phase, gradients, hidden_phase, negative_phase
from capspoe.errors import InputError
from capspoe.noise import Noise
from tiny import F64, all_hidden, all_visible, some_routing, tiny_layer

GATES = pytest.mark.parametrize("gate", ["winner", "none"])
NEURONS = pytest.mark.parametrize("neurons", ["binary", "gaussian"])


def parameters(layer):
    return layer.w_JNMI, layer.a, layer.b, layer.d


def exact_gradient(layer, x, c):
    """d log P(x) / d parameters for one image and fixed c, by autograd through all visible states."""
    layer.d.requires_grad_()
    states = all_visible(layer)
    log_Z = torch.logsumexp(-layer.free_energy(states, c.expand(len(states), -1, -1)), 0)
    log_p = -layer.free_energy(x, c).squeeze() - log_Z
    grads = torch.autograd.grad(log_p, parameters(layer), allow_unused=True)
    layer.d.requires_grad_(False)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(grads, parameters(layer), strict=True)]


@GATES
@NEURONS
def test_gradients_are_autograd_of_the_energy_difference_with_c_fixed(gate, neurons):
    layer = tiny_layer(gate, neurons)
    rng = torch.Generator().manual_seed(4)
    x, y = (torch.rand(7, 3, 2, generator=rng, dtype=F64) for _ in range(2))
    c = layer(x).c.detach()
    on = torch.randint(2, (7,), generator=rng) if gate == "winner" else None

    def phase(v):
        z = layer.preactivation(v, c).detach()
        return hidden_phase(layer, v, z, Noise.for_batch(7, dtype=F64), 0, on=on)

    positive, negative = phase(x), phase(y)
    found = gradients(layer, positive, negative, c)
    difference = layer.energy(y, negative.mean, c, on) - layer.energy(x, positive.mean, c, on)
    w, a, b = torch.autograd.grad(difference.mean(), (layer.w_JNMI, layer.a, layer.b))
    torch.testing.assert_close(found.w_JNMI, w)
    torch.testing.assert_close(found.a, a)
    torch.testing.assert_close(found.b, b)


@NEURONS
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_gate_is_taught_by_the_gradient_of_its_choice(neurons, temperature):
    layer = tiny_layer("winner", neurons)
    x = torch.rand(9, 3, 2, generator=torch.Generator().manual_seed(4), dtype=F64)
    on, c = torch.arange(9) % 2, layer(x).c.detach()
    noise = Noise.for_batch(9, dtype=F64)
    plain, _ = contrastive.step(layer, x, noise, temperature=temperature, on=on)
    taught, _ = contrastive.step(layer, x, noise, temperature=temperature, on=on, teach=3.0)
    chosen = layer.on_given_visible(layer.preactivation(x, c), temperature)[torch.arange(9), on]
    w, b = torch.autograd.grad(3 * chosen.log().mean(), (layer.w_JNMI, layer.b))
    torch.testing.assert_close(taught.w_JNMI - plain.w_JNMI, w)
    torch.testing.assert_close(taught.b - plain.b, b)
    torch.testing.assert_close(taught.a, plain.a)


@GATES
@NEURONS
def test_expected_gradient_over_all_states_is_the_likelihoods(gate, neurons):
    """Eq. 3, 16, 17 and 18: positive minus negative phase, weighed by exact probabilities."""
    layer = tiny_layer(gate, neurons)
    c = some_routing(layer)
    x = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]], dtype=F64)
    states = all_visible(layer)
    with torch.no_grad():
        p_model = torch.softmax(-layer.free_energy(states, c.expand(len(states), -1, -1)), 0)

    @torch.no_grad()
    def expected(visible, weights):
        """sum over x and on of their probability times the statistics, through `gradients` itself."""
        total = None
        for v, weight in zip(visible, weights, strict=True):
            z = layer.preactivation(v[None], c)
            p_on = layer.on_given_visible(z)[0] if gate == "winner" else torch.ones(1, dtype=F64)
            for j, p in enumerate(p_on):
                on = torch.tensor([j]) if gate == "winner" else None
                phase = hidden_phase(layer, v[None], z, Noise.for_batch(1, dtype=F64), 0, on=on)
                zero = Phase(
                    layer.mu[None], torch.zeros_like(phase.mean), on, torch.zeros_like(phase.on_probability)
                )
                part = [weight * p * g for g in gradients(layer, phase, zero, c)]
                total = part if total is None else [t + q for t, q in zip(total, part, strict=True)]
        return total

    positive, negative = expected(x, torch.ones(1)), expected(states, p_model)
    for found_p, found_n, exact in zip(
        positive[:3], negative[:3], exact_gradient(layer, x, c)[:3], strict=True
    ):
        torch.testing.assert_close(found_p - found_n, exact, rtol=1e-6, atol=1e-8)
    if gate == "winner":
        torch.testing.assert_close(
            positive[3] - negative[3], exact_gradient(layer, x, c)[3], rtol=1e-6, atol=1e-8
        )


@GATES
@NEURONS
def test_a_long_chain_approaches_the_likelihoods_gradient(gate, neurons):
    layer = tiny_layer(gate, neurons)
    c = some_routing(layer)
    x = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]], dtype=F64)
    chains = 20000
    xs, cs = x.expand(chains, -1, -1), c.expand(chains, -1, -1)
    noise = Noise.for_batch(chains, dtype=F64, seed=11)
    exact = exact_gradient(layer, x, c)
    with torch.no_grad():
        positive = hidden_phase(layer, xs, layer.preactivation(xs, cs), noise, 0)
        error = {}
        for k in (1, 30):
            negative = negative_phase(layer, positive, cs, noise, k, regate=True, sample_visible=True)
            found = gradients(layer, positive, negative, cs)
            error[k] = max((f - e).abs().max().item() for f, e in zip(found[:3], exact[:3], strict=True))
    assert error[30] < 0.04
    assert error[30] < error[1] / 2


@GATES
def test_without_regating_the_winner_stays(gate):
    layer = tiny_layer(gate)
    x = all_visible(layer)
    noise = Noise.for_batch(len(x), dtype=F64)
    with torch.no_grad():
        c, z = layer(x)
        positive = hidden_phase(layer, x, z, noise, 0)
        kept = negative_phase(layer, positive, c, noise, 3)
        redrawn = negative_phase(layer, positive, c, noise, 3, regate=True)
    if gate == "none":
        assert positive.on is kept.on is None
        assert (positive.mean != 0).all()
    else:
        assert torch.equal(positive.on, kept.on)
        assert not torch.equal(positive.on, redrawn.on)
        rows = torch.arange(len(x))
        assert (positive.mean[rows, 1 - positive.on] == 0).all()
        assert (kept.mean[rows, 1 - kept.on] == 0).all()
        assert (kept.mean[rows, kept.on] != 0).all()


@NEURONS
def test_hidden_samples_follow_their_conditional(neurons):
    layer = tiny_layer("none", neurons)
    mean = torch.full((40000, 2, 2), 0.3, dtype=F64)
    h = layer.sample_hidden(mean, Noise.for_batch(40000, dtype=F64), 0)
    torch.testing.assert_close(h.mean(0), torch.full((2, 2), 0.3, dtype=F64), atol=0.02, rtol=0)
    variance = 0.21 if neurons == "binary" else 1.0
    torch.testing.assert_close(h.var(0), torch.full((2, 2), variance, dtype=F64), atol=0.03, rtol=0)
    if neurons == "binary":
        assert set(h.unique().tolist()) == {0.0, 1.0}


@GATES
@NEURONS
@pytest.mark.parametrize("iterations", [1, 3])
def test_step_is_its_parts(gate, neurons, iterations):
    layer = tiny_layer(gate, neurons, iterations=iterations)
    x = torch.rand(9, 3, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    noise = Noise.for_batch(9, dtype=F64, seed=5)
    found, info = contrastive.step(layer, x, noise, k=2, temperature=2.0)
    with torch.no_grad():
        c, z = layer(x)
        positive = hidden_phase(layer, x, z, noise, 0, 2.0)
        negative = negative_phase(layer, positive, c, noise, 2, 2.0)
        parts = gradients(layer, positive, negative, c)
    for one, other in zip(found, parts, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(info.reconstruction, (x - negative.x).square().mean())
    torch.testing.assert_close(info.use, positive.on_probability.mean(0))
    torch.testing.assert_close(info.confidence, positive.on_probability.max(-1).values.mean())
    entropy = -(c * c.log()).sum(-1).mean() / torch.log(torch.tensor(3.0, dtype=F64))
    torch.testing.assert_close(info.routing_entropy, entropy)


@GATES
def test_batches_split_in_two_give_the_same_gradient(gate):
    layer = tiny_layer(gate)
    x = torch.rand(8, 3, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    whole, _ = contrastive.step(layer, x, Noise(1, 2, torch.arange(8), F64))
    halves = [
        contrastive.step(layer, x[s], Noise(1, 2, torch.arange(8)[s], F64))[0]
        for s in (slice(4), slice(4, 8))
    ]
    for g, left, right in zip(whole, *halves, strict=True):
        torch.testing.assert_close(g, (left + right) / 2)


@pytest.mark.parametrize("gate", ["winner", "none"])
def test_learning_raises_the_likelihood_of_the_data(gate):
    """Ascending the contrastive gradient with frozen routing makes the training images more likely."""
    layer = tiny_layer(gate, "binary", iterations=1)
    data = torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 1]], dtype=F64).reshape(
        3, 3, 2
    )
    states = all_visible(layer)

    @torch.no_grad()
    def log_likelihood():
        return (-layer.free_energy(data, None) - torch.logsumexp(-layer.free_energy(states, None), 0)).mean()

    before = log_likelihood()
    x = data.repeat(100, 1, 1)
    for step in range(150):
        found, info = contrastive.step(layer, x, Noise.for_batch(300, step=step, dtype=F64))
        with torch.no_grad():
            for parameter, gradient in zip((layer.w_JNMI, layer.a, layer.b), found, strict=False):
                parameter += 0.1 * gradient
            layer.balance(info.use, 0.01)
    assert log_likelihood() > before + 0.5


def test_wrong_k_is_named():
    layer = tiny_layer()
    with pytest.raises(InputError, match="k must be a whole number of 1 or more"):
        contrastive.step(layer, all_visible(layer), Noise.for_batch(64, dtype=F64), k=0)


def test_every_hidden_state_is_counted_once():
    h, on, weight = all_hidden(tiny_layer("winner"))
    assert len(h) == 2 * 4 == len(on) == len(weight)
    assert len(all_hidden(tiny_layer("none"))[0]) == 16
