"""The layer's closed forms against enumeration of all states, and the layer as a PyTorch module."""

import math

import pytest
import torch
from torch.autograd import forward_ad

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import reverse_route, route
from tiny import F64, all_hidden, all_visible, energy_by_hand, some_routing, tiny_layer

KINDS = pytest.mark.parametrize(
    ("gate", "neurons"),
    [("winner", "binary"), ("winner", "gaussian"), ("none", "binary"), ("none", "gaussian")],
)


class Enumerated:
    """The joint distribution of a tiny layer, from its energy in every state."""

    def __init__(self, gate, neurons, normalize="lower"):
        upper = (2, 1) if neurons == "gaussian" and gate == "none" else (2, 2)
        self.layer = layer = tiny_layer(gate, neurons, upper=upper, normalize=normalize)
        self.c = some_routing(layer)
        self.x, (self.h, self.on, self.weight) = all_visible(layer), all_hidden(layer)
        X, S = len(self.x), len(self.h)
        x, h = self.x.repeat_interleave(S, 0), self.h.repeat(X, 1, 1)
        on = None if self.on is None else self.on.repeat(X)
        with torch.no_grad():
            self.energy = layer.energy(x, h, self.c.expand(X * S, -1, -1), on).reshape(X, S)
            self.c_X = self.c.expand(X, -1, -1)
            self.z = layer.preactivation(self.x, self.c_X)
        self.mass = torch.exp(-self.energy) * self.weight


@pytest.fixture(params=["lower", "upper"])
def states(request, gate, neurons):
    return Enumerated(gate, neurons, request.param)


@KINDS
def test_energy(states, rng):
    """Eq. 8 and 9."""
    for p, s in zip(*(torch.randint(len(a), (50,), generator=rng) for a in (states.x, states.h)), strict=True):
        on = None if states.on is None else int(states.on[s])
        by_hand = energy_by_hand(states.layer, states.x[p], states.h[s], states.c[0], on)
        assert states.energy[p, s].item() == pytest.approx(by_hand, abs=1e-9)


@KINDS
def test_free_energy(states, gate, neurons):
    """Eq. 2, 10 and 13: exp(-free energy) is the joint, summed over the hidden states."""
    J, N = states.layer.upper
    log_marginal = -states.layer.free_energy(states.x, states.c_X).detach()
    if neurons == "gaussian":  # the constant that A(z) leaves out, for each neuron that may be on
        log_marginal += math.log(2 * math.pi) / 2 * N * (1 if gate == "winner" else J)
    torch.testing.assert_close(log_marginal, states.mass.sum(1).log(), rtol=1e-6, atol=1e-6)


@KINDS
def test_hidden_mean(states, gate, neurons):
    """Eq. 14: the mean of P(h | x), and with the gate of P(h_j | x, j on)."""
    mean = states.layer.hidden_mean(states.z)
    for j in range(states.layer.upper[0]):
        mass = states.mass if gate == "none" else states.mass * (states.on == j)
        expected = mass @ states.h[:, j] / mass.sum(1, keepdim=True)
        torch.testing.assert_close(mean[:, j], expected, rtol=1e-6, atol=1e-6)


@KINDS
def test_visible_mean(states):
    """Eq. 15."""
    some = torch.arange(0, len(states.h), max(1, len(states.h) // 40))
    on = states.on[some] if states.layer.gate.one_on else None
    mean = states.layer.visible_mean(states.h[some], states.c.expand(len(some), -1, -1), on).detach()
    conditional = states.mass[:, some] / states.mass[:, some].sum(0)
    torch.testing.assert_close(mean, torch.einsum("xs,xim->sim", conditional, states.x), rtol=1e-6, atol=1e-6)


@KINDS
def test_on_probability(states, gate, neurons):
    on = states.layer.on_probability(states.z, states.x)
    if gate == "none":  # Eq. 7
        torch.testing.assert_close(on, states.z.square().sum(-1) / (1 + states.z.square().sum(-1)))
        return
    for j in range(states.layer.upper[0]):
        expected = (states.mass * (states.on == j)).sum(1) / states.mass.sum(1)
        torch.testing.assert_close(on[:, j], expected, rtol=1e-6, atol=1e-6)
    warm = states.layer.on_probability(states.z, states.x, temperature=3.0)
    torch.testing.assert_close(warm, on ** (1 / 3) / (on ** (1 / 3)).sum(-1, keepdim=True))


@KINDS
def test_no_weights_means_uniform_weights(gate, neurons):
    layer = tiny_layer(gate, neurons)
    x, h = all_visible(layer)[:9], torch.rand(9, 2, 2, dtype=F64)
    on = torch.arange(9) % 2 if gate == "winner" else None
    c = torch.full((9, 2, 3), 1 / 3, dtype=F64)
    for function, arguments in (
        (layer.preactivation, (x,)),
        (layer.visible_mean, (h,)),
        (layer.free_energy, (x,)),
        (lambda x, c: layer.energy(x, h, c, on), (x,)),
    ):
        torch.testing.assert_close(function(*arguments, None), function(*arguments, c))
    one = tiny_layer(gate, neurons, iterations=1)
    torch.testing.assert_close(one(x).z, layer.preactivation(x, c))
    torch.testing.assert_close(one(x).c, c)
    assert one.reverse(h) is None


@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
def test_forward_and_reverse_are_routing_with_the_papers_matrices(rng, normalize, agreement):
    options = {"normalize": normalize, "agreement": agreement, "sharpness": 1.5, "iterations": 4}
    layer = tiny_layer("none", "gaussian", upper=(4, 2), **options)
    x = all_visible(layer)[5:9]
    c, z = route(x - layer.mu, layer.W, 4, normalize, agreement, 1.5)
    torch.testing.assert_close(layer(x).c, c)
    torch.testing.assert_close(layer(x).z, z + layer.b)
    torch.testing.assert_close(layer.preactivation(x, c), z + layer.b)
    torch.testing.assert_close(layer.W[1, 2], layer.w_JNMI[1, :, :, 2] * (3 if normalize == "lower" else 4))
    h = torch.randn(5, 4, 2, generator=rng, dtype=F64)
    expected = reverse_route(h, layer.W, 4, agreement, 1.5).c
    torch.testing.assert_close(layer.reverse(h), expected)
    assert expected.std() > 0.01


@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("gate", ["winner", "none"])
def test_reverse_leaves_out_weights_only_where_they_are_uniform(gate, agreement):
    layer = tiny_layer(gate, "gaussian", agreement=agreement)
    h = torch.zeros(2, 2, 2, dtype=F64)
    h[0, 1], h[1, 0] = torch.tensor([0.5, -1.0], dtype=F64), torch.tensor([2.0, 1.0], dtype=F64)
    c = layer.reverse(h)
    expected = reverse_route(h, layer.W, 3, agreement).c
    uniform = torch.full_like(expected, 1 / 3)
    assert (c is None) == torch.allclose(expected, uniform) == (agreement == "cosine")
    torch.testing.assert_close(layer.visible_mean(h, c), layer.visible_mean(h, expected))


def test_balance_moves_the_gate_toward_the_wanted_use():
    """d_j += rate (1 - use_j / share_j), the mean of d staying 0."""
    layer, use = tiny_layer(upper=(3, 2)), torch.tensor([0.7, 0.2, 0.1], dtype=F64)
    for share in (None, torch.tensor([0.5, 0.3, 0.2], dtype=F64)):
        before = layer.d.clone()
        layer.balance(use, rate=0.5, share=share)
        step = 0.5 * (1 - use / (1 / 3 if share is None else share))
        torch.testing.assert_close(layer.d, before + step - (before + step).mean())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_start_from_the_mean_code(bias, centred):
    layer = CapsuleLayer((3, 2), (2, 2), bias=bias, centred=centred)
    mean = torch.tensor([[0.1, 0.9], [0.5, 0.0], [1.0, 0.25]])
    layer.start_from(mean)
    torch.testing.assert_close(layer.mu, mean if centred else torch.zeros(3, 2))
    off, on = torch.zeros(2, 2, 2), torch.arange(2)
    alone = layer.visible_mean(off, None, on).detach()
    torch.testing.assert_close(
        alone, (mean if bias else torch.full_like(mean, 0.5)).expand(2, -1, -1), atol=2e-4, rtol=0
    )
    assert layer.a.requires_grad == layer.b.requires_grad == bias
    groups = torch.stack([mean.flip(0), mean.flip(1)])
    layer.start_from(mean, groups)
    if bias:
        torch.testing.assert_close(layer.visible_mean(off, None, on).detach(), groups, atol=2e-4, rtol=0)


def test_start_from_groups_is_a_mixture_of_independent_units():
    """Without weights log P(x | on = j) is that of units with the group's means, and groups are equally probable."""
    layer = CapsuleLayer((3, 2), (2, 2), iterations=1, initial_std=0.0, dtype=F64)
    groups = torch.rand(2, 3, 2, dtype=F64, generator=torch.Generator().manual_seed(0))
    layer.start_from(groups.mean(0), groups)
    x = torch.bernoulli(groups.mean(0).expand(7, -1, -1))
    expected = torch.softmax(
        -torch.nn.functional.binary_cross_entropy(
            groups.expand(7, -1, -1, -1), x[:, None].expand(-1, 2, -1, -1), reduction="none"
        ).sum((2, 3)),
        -1,
    )
    torch.testing.assert_close(layer.on_probability(layer(x).z, x).detach(), expected)


def test_initial_weights():
    layer = CapsuleLayer((50, 8), (20, 4), initial_std=0.3, seed=2)
    assert layer.w_JNMI.std().item() == pytest.approx(0.3, rel=0.02)
    assert torch.equal(layer.w_JNMI, CapsuleLayer((50, 8), (20, 4), initial_std=0.3, seed=2).w_JNMI)
    assert not torch.equal(layer.w_JNMI, CapsuleLayer((50, 8), (20, 4), initial_std=0.3, seed=3).w_JNMI)


def test_wrong_arguments_are_named():
    layer = tiny_layer()
    x = torch.zeros(1, 3, 2, dtype=F64)
    for call, message in (
        (lambda: layer(x.mT), r"x must have shape \(B, I=3, M=2\)"),
        (lambda: layer(x.float()), "x is float32 but must be float64"),
        (lambda: layer(x * math.nan), "x contains NaN"),
        (lambda: layer.reverse(x), r"h must have shape \(B, J=2, N=2\)"),
        (lambda: layer.energy(x, torch.zeros(1, 2, 2, dtype=F64), None), "on is needed"),
        (lambda: layer.start_from(torch.full((3, 2), math.nan)), "mean_code contains NaN"),
        (lambda: CapsuleLayer((3, 2), (2, 2), gate="both"), "gate must be one of 'winner', 'none'"),
        (lambda: CapsuleLayer((3, 2), (2, 2), neurons="real"), "neurons must be one of"),
        (lambda: CapsuleLayer((3, 2), (0, 2)), "number of upper capsules"),
        (lambda: CapsuleLayer((3, 2.5), (1, 2)), "neurons in a lower capsule"),
        (lambda: CapsuleLayer((3, 2), (1, 2), sharpness=math.inf), "must be finite"),
    ):
        with pytest.raises(InputError, match=message):
            call()


# As a module of another network.


def test_weights_follow_torchs_seed_and_every_parameter_gets_a_gradient(rng):
    def weights(seed):
        torch.manual_seed(seed)
        return CapsuleLayer((5, 3), (4, 2)).w_JNMI

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
    layer, x = CapsuleLayer((5, 3), (4, 2), centred=False, bias="upper"), torch.randn(2, 5, 3, generator=rng)
    z = layer(x).z
    z.square().sum().backward()
    assert all((p.grad is not None) == p.requires_grad for p in layer.parameters())
    assert {name for name, p in layer.named_parameters() if p.requires_grad} == {"w_JNMI", "b"}
    torch.testing.assert_close(route(x, layer.W).z, z.detach())


def test_kernels_never_hide_a_derivative(rng):
    layer = CapsuleLayer((5, 3), (4, 2)).requires_grad_(False)
    x, step = (torch.randn(2, 5, 3, generator=rng) for _ in range(2))
    assert kernels.select(x, layer.w_JNMI)
    c = layer(x).c.requires_grad_()
    assert layer.preactivation(x, c).requires_grad
    assert layer.visible_mean(torch.rand(2, 4, 2), c).requires_grad
    assert layer(x.clone().requires_grad_()).z.requires_grad
    with forward_ad.dual_level():
        forwards = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, step)).z).tangent
    _, functional = torch.func.jvp(lambda x: layer(x).z, (x,), (step,))
    with torch.no_grad(), kernels.use("reference"):
        difference = (layer(x + 1e-2 * step).z - layer(x - 1e-2 * step).z) / 2e-2
    torch.testing.assert_close(forwards, difference, rtol=0.02, atol=1e-3)
    torch.testing.assert_close(functional, forwards)


def test_torch_compile_takes_a_layer_whole(rng):
    layer, x = CapsuleLayer((5, 3), (4, 2)), torch.randn(2, 5, 3, generator=rng)

    def both_ways(layer, x):
        c, z = layer(x)
        return layer.on_probability(z, x), layer.visible_mean(z, c)

    def gradient(outputs):
        return torch.autograd.grad(outputs[1].sum(), layer.w_JNMI)

    compiled = torch.compile(both_ways, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(layer, x), both_ways(layer, x))
    torch.testing.assert_close(gradient(compiled(layer, x)), gradient(both_ways(layer, x)))
