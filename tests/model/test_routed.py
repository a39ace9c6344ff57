"""A layer after routing: one capsule alone against all capsules with the others at 0, in double precision."""

import copy

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.test_routing import AGREEMENTS, AXES, shapes

from capspoe.model.gates import only, place
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import RoutedRBM, Slots, StateSums, WinnerNoise, routed

LAYERS = st.fixed_dictionaries(
    {
        "neurons": st.sampled_from(["gaussian", "binary"]),
        "iterations": st.integers(1, 3),
        "normalize": AXES,
        "agreement": AGREEMENTS,
        "bias": st.booleans(),
        "centred": st.booleans(),
    }
)


def some_layer(shape, options, seed=0):
    _, I, M, J, N = shape
    rng = torch.Generator().manual_seed(seed)
    layer = CapsuleLayer((I, M), (J, N), initial_std=0.3, seed=seed, **options)
    layer.start_from(torch.rand(I, M, generator=rng) * 0.8 + 0.1)
    with torch.no_grad():
        layer.b.copy_(0.1 * torch.randn(J, N, generator=rng))
        layer.d.copy_(0.1 * torch.randn(J, generator=rng))
    return layer


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(shapes, LAYERS, st.booleans(), st.integers(0, 99))
@torch.no_grad()
def test_the_winner_alone_is_the_layer_with_the_others_off(shape, options, sample_visible, seed):
    layer = some_layer(shape, options, seed)
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(shape[:3], generator=rng)
    on = torch.randint(shape[3], (shape[0],), generator=rng)
    noise = Noise(seed, 4, 7 * torch.arange(shape[0]))
    double = copy.deepcopy(layer).double()
    c = double(x.double()).c
    rbm = routed(layer, c.float(), on)

    def everything(v):
        return only(double.hidden_mean(double.preactivation(v, c)), on)

    def close(one, other):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-4 * max(1.0, other.abs().amax().item()))

    h = rbm.hidden_mean(x)
    close(place(h, on, shape[3]), everything(x.double()))
    drawn = rbm.sample_hidden(h, noise, 1)
    uniform = noise.uniform(2, *shape[1:3]) if sample_visible else None
    y, mean = rbm.reconstruct(drawn, uniform)
    probability = double.visible_mean(place(drawn.double(), on, shape[3]), c, on)
    if sample_visible:
        unlike = (y != (uniform < probability)).flatten()
        assert ((uniform - probability).abs().flatten()[unlike] < 1e-5).all()
    else:
        close(y, probability)
    close(place(mean, on, shape[3]), everything(y.double()))
    sums = rbm.sums()
    sums.add(x, h, +1)
    sums.add(y, mean, -1)
    found = sums.total()
    double_sums = StateSums(double, c)
    for sign, v, state in ((1, x, h), (-1, y, mean)):
        centred = v.double() - double.mu
        double_sums.w_JNMI = double_sums.w_JNMI + sign * double_sums.correlation(
            v.double(), place(state.double(), on, shape[3])
        )
        double_sums.a = double_sums.a + sign * torch.zeros_like(double.a).index_add_(0, on, centred)
    close(found.w_JNMI, double_sums.w_JNMI / len(x))
    close(found.a, double_sums.a / len(x))
    close(found.b, place((h - mean).double(), on, shape[3]).mean(0))


def test_sums_with_given_weights_are_those_of_one_einsum():
    layer = some_layer((5, 20, 3, 4, 6), {"gate": "none"})
    rng = torch.Generator().manual_seed(1)
    x, h, c = (torch.rand(s, generator=rng) for s in ((5, 20, 3), (5, 4, 6), (5, 4, 20)))
    r, w, y = 20 * c, layer.w_JNMI, x - layer.mu
    with torch.no_grad():
        found = layer.preactivation(x, c), layer.visible_mean(h, c), StateSums(layer, c).correlation(x, h)
        right = (
            torch.einsum("bji,jnmi,bim->bjn", r, w, y) + layer.b,
            torch.sigmoid(layer.a + torch.einsum("bji,jnmi,bjn->bim", r, w, h)),
            torch.einsum("bji,bjn,bim->jnmi", r, h, y),
        )
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other)


def test_which_rbm_a_layer_becomes():
    layer = some_layer((2, 4, 2, 3, 2), {"gate": "none"})
    x = torch.rand(2, 4, 2)
    assert isinstance(routed(layer, layer(x).c, None), RoutedRBM)


def test_the_winners_noise_is_the_noise_of_all_capsules():
    on = torch.tensor([2, 0, 3])
    noise = Noise(3, 9, torch.tensor([5, 0, 123456789]))
    winners = WinnerNoise(3, 9, noise.index, on=on, capsules=4)
    rows = torch.arange(3)
    assert torch.equal(winners.uniform(1, 6), noise.uniform(1, 4, 6)[rows, on])
    assert torch.equal(winners.normal(1, 6), noise.normal(1, 4, 6)[rows, on])


def test_every_entry_has_a_slot_of_its_capsule():
    capsule = torch.tensor([2, 0, 2, 2, 0])
    slots = Slots.of(capsule, 4)
    assert slots.entry_JP.shape == (4, 3)
    assert slots.entry_JP[capsule, slots.slot].tolist() == list(range(5))
    assert slots.used_JP.sum(1).tolist() == [2, 0, 3, 0]
