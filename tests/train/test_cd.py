"""Gradients of contrastive divergence against autograd, enumeration and long chains."""

import pytest
import torch

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.train import cd as contrastive
from capspoe.train.cd import Phase, gradients, hidden_phase, negative_phase
from tiny import F64, all_visible, some_routing, tiny_layer

GATES = pytest.mark.parametrize("gate", ["winner", "none"])
NEURONS = pytest.mark.parametrize("neurons", ["binary", "gaussian"])
X = torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]], dtype=F64)


def exact_gradient(layer, x, c):
    """d log P(x) / d (w, a, b, d) for one image and fixed c: autograd through the sum over all visible states."""
    parameters = (layer.w_JNMI, layer.a, layer.b, layer.d.requires_grad_())
    states = all_visible(layer)
    log_Z = torch.logsumexp(-layer.free_energy(states, c.expand(len(states), -1, -1)), 0)
    log_p = -layer.free_energy(x, c).squeeze() - log_Z
    found = torch.autograd.grad(log_p, parameters, materialize_grads=True, allow_unused=True)
    layer.d.requires_grad_(False)
    return found


@GATES
@NEURONS
def test_gradients_are_autograd_of_the_energy_difference_with_c_fixed(gate, neurons, rng):
    layer = tiny_layer(gate, neurons)
    x, y = (torch.rand(7, 3, 2, generator=rng, dtype=F64) for _ in range(2))
    c = layer(x).c.detach()
    on = torch.randint(2, (7,), generator=rng) if gate == "winner" else None

    def phase(v):
        z = layer.preactivation(v, c).detach()
        return hidden_phase(layer, v, z, Noise.for_batch(7, dtype=F64), 0, on=on)

    positive, negative = phase(x), phase(y)
    difference = layer.energy(y, negative.mean, c, on) - layer.energy(x, positive.mean, c, on)
    expected = torch.autograd.grad(difference.mean(), (layer.w_JNMI, layer.a, layer.b))
    torch.testing.assert_close(tuple(gradients(layer, positive, negative, c)[:3]), expected)


@GATES
@NEURONS
def test_expected_gradient_over_all_states_is_that_of_the_likelihood(gate, neurons):
    """Eq. 3, 16, 17 and 18: positive minus negative phase, weighted by exact probabilities."""
    layer = tiny_layer(gate, neurons)
    c, states = some_routing(layer), all_visible(layer)

    @torch.no_grad()
    def expected(visible, weights):
        """Sum of the statistics over x and the capsule that is on, weighted by their probabilities."""
        total = [0.0] * 4
        for v, weight in zip(visible, weights, strict=True):
            z = layer.preactivation(v[None], c)
            p_on = layer.on_probability(z, v[None])[0] if gate == "winner" else torch.ones(1, dtype=F64)
            for j, p in enumerate(p_on):
                on = torch.tensor([j]) if gate == "winner" else None
                phase = hidden_phase(layer, v[None], z, Noise.for_batch(1, dtype=F64), 0, on=on)
                none = torch.zeros_like(phase.mean), on, torch.zeros_like(phase.on_probability)
                found = gradients(layer, phase, Phase(layer.mu[None], *none), c)
                total = [t + weight * p * g for t, g in zip(total, found, strict=True)]
        return total

    p_model = torch.softmax(-layer.free_energy(states, c.expand(len(states), -1, -1)), 0)
    positive, negative = expected(X, torch.ones(1)), expected(states, p_model)
    exact = exact_gradient(layer, X, c)
    for k in range(4 if gate == "winner" else 3):
        torch.testing.assert_close(positive[k] - negative[k], exact[k], rtol=1e-6, atol=1e-8)


@GATES
@NEURONS
def test_a_long_chain_approaches_the_gradient_of_the_likelihood(gate, neurons):
    layer = tiny_layer(gate, neurons)
    c, chains = some_routing(layer), 10000
    xs, cs = X.expand(chains, -1, -1), c.expand(chains, -1, -1)
    noise = Noise.for_batch(chains, dtype=F64, seed=11)
    exact, error = exact_gradient(layer, X, c), {}
    with torch.no_grad():
        positive = hidden_phase(layer, xs, layer.preactivation(xs, cs), noise, 0)
        for k in (1, 20):
            negative = negative_phase(layer, positive, cs, noise, k, regate=True, sample_visible=True)
            found = gradients(layer, positive, negative, cs)
            count = 4 if gate == "winner" else 3
            pairs = zip(found[:count], exact[:count], strict=True)
            error[k] = max((f - e).abs().max().item() for f, e in pairs)
    assert error[20] < 0.04
    assert error[20] < error[1] / 2


@NEURONS
@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_the_gate_learns_by_the_gradient_of_its_cross_entropy(neurons, temperature, rng):
    layer = tiny_layer("winner", neurons)
    x, on = torch.rand(9, 3, 2, generator=rng, dtype=F64), torch.arange(9) % 2
    c, noise = layer(x).c.detach(), Noise.for_batch(9, dtype=F64)
    without, with_loss = (
        contrastive.step(layer, x, noise, temperature=temperature, on=on, gate_loss_weight=weight)[0]
        for weight in (0.0, 3.0)
    )
    chosen = layer.on_probability(layer.preactivation(x, c), x, temperature)[torch.arange(9), on]
    w, a, b = torch.autograd.grad(3 * chosen.log().mean(), (layer.w_JNMI, layer.a, layer.b))
    torch.testing.assert_close(with_loss.w_JNMI - without.w_JNMI, w)
    torch.testing.assert_close(with_loss.b - without.b, b)
    torch.testing.assert_close(with_loss.a - without.a, a)
    nearly = torch.tensor([[0.99, 0.01], [0.9995, 0.0005]], dtype=F64)
    error = contrastive.gate_error(torch.tensor([0, 0]), nearly, 1.0)
    assert (error != 0).any(1).tolist() == [True, False]  # negligible errors have no gradient


@GATES
def test_without_regating_the_winner_stays(gate):
    layer = tiny_layer(gate)
    x = all_visible(layer)
    noise, rows = Noise.for_batch(len(x), dtype=F64), torch.arange(len(x))
    with torch.no_grad():
        c, z = layer(x)
        positive = hidden_phase(layer, x, z, noise, 0)
        kept = negative_phase(layer, positive, c, noise, 3)
        redrawn = negative_phase(layer, positive, c, noise, 3, regate=True)
    if gate == "none":
        assert positive.on is kept.on is None
        assert (positive.mean != 0).all()
        assert not torch.equal(kept.on_probability, positive.on_probability)
        return
    assert torch.equal(positive.on, kept.on)
    assert not torch.equal(positive.on, redrawn.on)
    assert not gradients(layer, positive, kept, c).d.any()
    for phase in (positive, kept):
        assert (phase.mean[rows, 1 - phase.on] == 0).all()
        assert (phase.mean[rows, phase.on] != 0).all()


@GATES
@NEURONS
@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_a_step_and_its_diagnostics(gate, neurons, iterations, normalize, rng):
    """The chain written out: every draw has its own stream, so that the kernels can repeat it."""
    layer = tiny_layer(gate, neurons, iterations=iterations, normalize=normalize)
    x, noise = torch.rand(9, 3, 2, generator=rng, dtype=F64), Noise.for_batch(9, dtype=F64, seed=5)
    found, info = contrastive.step(layer, x, noise, k=2, temperature=2.0)
    with torch.no_grad():
        c, z = layer(x)
        on = layer.on_probability(z, x, 2.0)
        chosen = noise.choose(0, on)
        mask = torch.nn.functional.one_hot(chosen, 2)[:, :, None] if gate == "winner" else 1
        first = mean = mask * layer.hidden_mean(z)
        for stream in (1, 5):
            h = mask * layer.sample_hidden(mean, noise, stream)
            y = layer.visible_mean(h, c, chosen if gate == "winner" else None)
            last = layer.preactivation(y, c)
            mean = mask * layer.hidden_mean(last)
        r = layer.fan * c
        w = torch.einsum("bji,bjn,bim->jnmi", r, first, x - layer.mu)
        w = w - torch.einsum("bji,bjn,bim->jnmi", r, mean, y - layer.mu)
        entropy = -(c * c.log()).sum(2 if normalize == "lower" else 1).mean() / torch.tensor(layer.fan).log()
    torch.testing.assert_close(found.w_JNMI, w / 9)
    own = mask[:, :, :, None] / 9 * (x - y)[:, None] if gate == "winner" else (x - y) / 9
    torch.testing.assert_close(found.a, own.sum(0))
    torch.testing.assert_close(found.b, (first - mean).mean(0))
    if gate == "none":
        torch.testing.assert_close(found.d, (on - layer.on_probability(last, y)).mean(0).detach())
    torch.testing.assert_close(info.reconstruction, (x - y).square().mean())
    torch.testing.assert_close(info.use, on.mean(0))
    torch.testing.assert_close(info.confidence, on.max(-1).values.mean())
    torch.testing.assert_close(info.routing_entropy, entropy.to(F64), check_dtype=False)


@pytest.mark.parametrize("backend", ["kernel", "reference"])
def test_given_winners_train_their_capsules_alone(backend, rng):
    layer, x = CapsuleLayer((6, 4), (3, 2), seed=1), torch.rand(5, 6, 4, generator=rng)
    with kernels.use(backend):
        found, _ = contrastive.step(layer, x, Noise.for_batch(5), on=torch.tensor([2, 0, 2, 2, 0]))
    assert (found.w_JNMI.abs().sum((1, 2, 3)) > 0).tolist() == [True, False, True]


@GATES
@NEURONS
@pytest.mark.parametrize("targets", [False, True])
def test_the_kernels_take_the_same_step(gate, neurons, targets, rng):
    layer = CapsuleLayer((6, 4), (3, 5), gate=gate, neurons=neurons, initial_std=0.4)
    x, on = torch.rand(7, 6, 4, generator=rng), torch.arange(7) % 3
    options = {"k": 2, "temperature": 1.5} | ({"on": on, "gate_loss_weight": 2.0} if targets else {})
    results = []
    for backend in ("kernel", "reference"):
        with kernels.use(backend):
            results.append(contrastive.step(layer, x, Noise.for_batch(7), **options))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(tuple(one), tuple(other), rtol=1e-4, atol=1e-5)


def test_wrong_k_is_named():
    layer = tiny_layer()
    with pytest.raises(InputError, match="k must be an integer of 1 or more"):
        contrastive.step(layer, all_visible(layer), Noise.for_batch(64, dtype=F64), k=0)
