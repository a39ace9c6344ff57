"""Contrastive divergence of winners alone against that of all capsules, in double precision."""

import copy

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.test_routing import AGREEMENTS, AXES, shapes

from capspoe import kernels
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.train.cd import WinnerNoise, correlation, step

LAYERS = st.fixed_dictionaries(
    {
        "gate": st.sampled_from(["winner", "none"]),
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
@given(shapes, LAYERS, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_a_step_is_the_references(shape, options, k, regate, sample_visible, with_target, seed):
    layer = some_layer(shape, options, seed)
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(shape[:3], generator=rng)
    noise = Noise(seed, 4, 7 * torch.arange(shape[0]))
    steps = {"k": k, "temperature": 1.5, "regate": regate, "sample_visible": sample_visible}
    if with_target:
        steps |= {"on": torch.randint(shape[3], (shape[0],), generator=rng), "gate_loss_weight": 0.7}
    with kernels.use("kernel"):
        found = step(layer, x, noise, **steps)
    # In double precision: after three steps of a gaussian chain the float32 reference is 1e-4 off, the kernel 2e-5.
    right = step(copy.deepcopy(layer).double(), x.double(), noise, **steps)
    for one, other in zip((*found[0], *found[1]), (*right[0], *right[1]), strict=True):
        assert one.shape == other.shape
        atol = 1e-4 * max(1.0, other.abs().amax().item())
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=atol)


def test_sums_with_given_weights_are_those_of_one_einsum():
    layer = some_layer((5, 20, 3, 4, 6), {"gate": "none"})
    rng = torch.Generator().manual_seed(1)
    x, h, c = (torch.rand(s, generator=rng) for s in ((5, 20, 3), (5, 4, 6), (5, 4, 20)))
    r, w, y = 20 * c, layer.w_JNMI, x - layer.mu
    with torch.no_grad():
        found = layer.preactivation(x, c), layer.visible_mean(h, c), correlation(layer, x, h, c)
        right = (
            torch.einsum("bji,jnmi,bim->bjn", r, w, y) + layer.b,
            torch.sigmoid(layer.a + torch.einsum("bji,jnmi,bjn->bim", r, w, h)),
            torch.einsum("bji,bjn,bim->jnmi", r, h, y),
        )
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other)


def test_the_winners_noise_is_the_noise_of_all_capsules():
    on = torch.tensor([2, 0, 3])
    noise = Noise(3, 9, torch.tensor([5, 0, 123456789]))
    winners = WinnerNoise(3, 9, noise.index, on=on, capsules=4)
    rows = torch.arange(3)
    assert torch.equal(winners.uniform(1, 6), noise.uniform(1, 4, 6)[rows, on])
    assert torch.equal(winners.normal(1, 6), noise.normal(1, 4, 6)[rows, on])
