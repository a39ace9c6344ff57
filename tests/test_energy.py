"""The layer's closed forms against a count of every state of tiny models."""

import math

import pytest
import torch

from capspoe.capsules import CapsuleLayer
from capspoe.errors import InputError
from tiny import F64, all_hidden, all_visible, energy_by_hand, some_routing, tiny_layer

KINDS = [
    pytest.param(gate, neurons, bias, id=f"{gate}-{neurons}-{'bias' if bias else 'nobias'}")
    for gate in ("winner", "none")
    for neurons in ("binary", "gaussian")
    for bias in (True, False)
]
pytestmark = pytest.mark.parametrize(("gate", "neurons", "bias"), KINDS)


class Counted:
    """The joint distribution of a tiny model, from its energy in every state."""

    def __init__(self, gate, neurons, bias, **options):
        upper = (2, 1) if neurons == "gaussian" and gate == "none" else (2, 2)
        self.layer = layer = tiny_layer(gate, neurons, bias, upper=upper, **options)
        self.c = some_routing(layer)
        self.x, (self.h, self.on, self.weight) = all_visible(layer), all_hidden(layer)
        X, S = len(self.x), len(self.h)
        with torch.no_grad():
            self.energy = layer.energy(
                self.x.repeat_interleave(S, 0),
                self.h.repeat(X, 1, 1),
                self.c.expand(X * S, -1, -1),
                None if self.on is None else self.on.repeat(X),
            ).reshape(X, S)
        self.mass = torch.exp(-self.energy) * self.weight
        self.Z = self.mass.sum()
        self.c_X = self.c.expand(X, -1, -1)


@pytest.fixture
def counted(gate, neurons, bias):
    return Counted(gate, neurons, bias)


def test_energy(counted, gate, neurons, bias):
    """Eq. 8 and 9."""
    rng = torch.Generator().manual_seed(0)
    for _ in range(50):
        p = int(torch.randint(len(counted.x), (1,), generator=rng))
        s = int(torch.randint(len(counted.h), (1,), generator=rng))
        on = None if counted.on is None else int(counted.on[s])
        by_hand = energy_by_hand(counted.layer, counted.x[p], counted.h[s], counted.c[0], on)
        assert counted.energy[p, s].item() == pytest.approx(by_hand, abs=1e-9)


def test_marginal(counted, gate, neurons, bias):
    """Eq. 2, 10 and 13: exp(-free energy) is the joint summed over the hidden states."""
    layer = counted.layer
    log_marginal = -layer.free_energy(counted.x, counted.c_X).detach()
    if neurons == "gaussian":  # each neuron that may be on integrates to a constant factor
        log_marginal += (
            math.log(2 * math.pi) / 2 * (layer.upper[1] * (1 if gate == "winner" else layer.upper[0]))
        )
    torch.testing.assert_close(
        log_marginal.exp() / counted.Z, counted.mass.sum(1) / counted.Z, rtol=1e-6, atol=1e-9
    )


def test_hidden_given_visible(counted, gate, neurons, bias):
    """Eq. 14: the mean of P(h | x), and with the gate of P(h_j | x, j on)."""
    layer = counted.layer
    mean = layer.hidden_given_visible(layer.preactivation(counted.x, counted.c_X)).detach()
    for j in range(layer.upper[0]):
        mass = counted.mass if gate == "none" else counted.mass * (counted.on == j)
        expected = mass @ counted.h[:, j] / mass.sum(1, keepdim=True)
        torch.testing.assert_close(mean[:, j], expected, rtol=1e-6, atol=1e-6)


def test_visible_given_hidden(counted, gate, neurons, bias):
    """Eq. 15."""
    some = torch.arange(0, len(counted.h), max(1, len(counted.h) // 40))
    given = counted.layer.visible_given_hidden(counted.h[some], counted.c.expand(len(some), -1, -1)).detach()
    conditional = counted.mass[:, some] / counted.mass[:, some].sum(0)
    expected = torch.einsum("xs,xim->sim", conditional, counted.x)
    torch.testing.assert_close(given, expected, rtol=1e-6, atol=1e-6)


def test_on_given_visible(counted, gate, neurons, bias):
    layer = counted.layer
    z = layer.preactivation(counted.x, counted.c_X).detach()
    on = layer.on_given_visible(z).detach()
    if gate == "none":  # Eq. 7
        torch.testing.assert_close(on, z.square().sum(-1) / (1 + z.square().sum(-1)))
        return
    for j in range(layer.upper[0]):
        expected = (counted.mass * (counted.on == j)).sum(1) / counted.mass.sum(1)
        torch.testing.assert_close(on[:, j], expected, rtol=1e-6, atol=1e-6)
    warm = layer.on_given_visible(z, temperature=3.0).detach()
    torch.testing.assert_close(warm, on ** (1 / 3) / (on ** (1 / 3)).sum(-1, keepdim=True))


def test_uniform_routing_may_be_left_out(gate, neurons, bias):
    layer = tiny_layer(gate, neurons, bias)
    x, (h, on, _) = all_visible(layer)[:9], all_hidden(tiny_layer(gate, "binary", bias))
    h, on = h[:9], None if on is None else on[:9]
    c = torch.full((9, 2, 3), 1 / 3, dtype=F64)
    n = min(len(x), len(h))
    torch.testing.assert_close(layer.preactivation(x, None), layer.preactivation(x, c))
    torch.testing.assert_close(
        layer.visible_given_hidden(h, None), layer.visible_given_hidden(h, c[: len(h)])
    )
    torch.testing.assert_close(
        layer.energy(x[:n], h[:n], None, None if on is None else on[:n]),
        layer.energy(x[:n], h[:n], c[:n], None if on is None else on[:n]),
    )
    torch.testing.assert_close(layer.free_energy(x, None), layer.free_energy(x, c))
    one = tiny_layer(gate, neurons, bias, iterations=1)
    torch.testing.assert_close(one(x).z, layer.preactivation(x, c))
    torch.testing.assert_close(one(x).c, c)


@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
def test_forward_is_routing_with_the_papers_matrices(gate, neurons, bias, normalize, agreement):
    from capspoe.routing import route

    layer = tiny_layer(gate, neurons, bias, normalize=normalize, agreement=agreement, sharpness=1.5)
    x = all_visible(layer)[5:9]
    routing = layer(x)
    c, z = route(x - layer.mu, layer.W, 3, normalize, agreement, 1.5)
    torch.testing.assert_close(routing.c, c)
    torch.testing.assert_close(routing.z, z + layer.b)
    torch.testing.assert_close(layer.preactivation(x, routing.c), routing.z)
    assert layer.W.shape == (2, 3, 2, 2)
    torch.testing.assert_close(layer.W[1, 2], layer.w_JNMI[1, :, :, 2] * (3 if normalize == "lower" else 2))


def test_reverse_is_reverse_routing_with_the_papers_matrices(gate, neurons, bias):
    from capspoe.routing import reverse_route

    layer = tiny_layer(gate, neurons, bias, upper=(3, 2), iterations=4, sharpness=2.0)
    h = torch.randn(5, 3, 2, generator=torch.Generator().manual_seed(1), dtype=F64)
    expected = reverse_route(h, layer.W, 4, "cosine", 2.0).c
    torch.testing.assert_close(layer.reverse(h), expected)
    assert expected.std() > 0.01


def test_balance_moves_the_gate_toward_equal_use(gate, neurons, bias):
    layer = tiny_layer(gate, neurons, bias)
    before = layer.d.clone()
    layer.balance(torch.tensor([0.9, 0.1], dtype=F64), rate=0.5)
    change = layer.d - before
    torch.testing.assert_close(
        change[0] - change[1], torch.tensor(0.5 * (1 - 1.8) - 0.5 * (1 - 0.2), dtype=F64)
    )


def test_balance_moves_the_gate_toward_a_wanted_use(gate, neurons, bias):
    layer = tiny_layer(gate, neurons, bias)
    use, before = torch.tensor([0.8, 0.2], dtype=F64), layer.d.clone()
    layer.balance(use, rate=0.5, share=use)
    torch.testing.assert_close(layer.d[0] - layer.d[1], before[0] - before[1])
    layer.balance(use, rate=0.5, share=torch.tensor([0.4, 0.6], dtype=F64))
    moved = (layer.d[0] - layer.d[1]) - (before[0] - before[1])
    torch.testing.assert_close(moved, torch.tensor(0.5 * (1 - 2) - 0.5 * (1 - 1 / 3), dtype=F64))


def test_starting_from_a_mean_code(gate, neurons, bias):
    layer = CapsuleLayer((3, 2), (2, 2), gate=gate, neurons=neurons, bias=bias)
    mean = torch.tensor([[0.1, 0.9], [0.5, 0.0], [1.0, 0.25]])
    layer.start_from(mean)
    torch.testing.assert_close(layer.mu, mean)
    nothing = layer.visible_given_hidden(torch.zeros(1, 2, 2), None)[0]
    torch.testing.assert_close(nothing, mean if bias else torch.full_like(mean, 0.5), atol=2e-4, rtol=0)


def test_wrong_arguments_are_named(gate, neurons, bias):
    layer = tiny_layer(gate, neurons, bias)
    with pytest.raises(InputError, match=r"x must have shape \(B, I=3, M=2\)"):
        layer(torch.zeros(1, 2, 3, dtype=F64))
    with pytest.raises(InputError, match="x is float32 but must be float64"):
        layer(torch.zeros(1, 3, 2))
    with pytest.raises(InputError, match="x contains NaN"):
        layer(torch.full((1, 3, 2), float("nan"), dtype=F64))
    with pytest.raises(InputError, match=r"h must have shape"):
        layer.reverse(torch.zeros(1, 3, 2, dtype=F64))
    with pytest.raises(InputError, match="gate must be one of"):
        CapsuleLayer((3, 2), (2, 2), gate="both")
    with pytest.raises(InputError, match="number of upper capsules"):
        CapsuleLayer((3, 2), (0, 2))
    if gate == "winner":
        with pytest.raises(InputError, match="on is needed"):
            layer.energy(torch.zeros(1, 3, 2, dtype=F64), torch.zeros(1, 2, 2, dtype=F64), None)
