"""The routing kernel against the reference in double precision: shapes, values, axes, neighbours."""

import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routing import reference, route
from capspoe.training.cd import ContrastiveDivergence

SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 17])
LOWER = st.sampled_from([1, 2, 7, 8, 15, 16, 17, 31, 48, 50, 300])  # 300: more than one chunk of 16 vectors
AXES = st.sampled_from(["lower", "upper"])
AGREEMENTS = st.sampled_from(["cosine", "dot"])
shapes = st.tuples(st.integers(1, 9), LOWER, SIZES, SIZES, SIZES)  # B, I, M, J, N
quick = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def inputs(shape, seed, scale=1.0):
    B, I, M, J, N = shape
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn(B, I, M, generator=rng), torch.randn(J, I, N, M, generator=rng) / M**0.5


def by_kernel(x, W, *arguments):
    with kernels.use("kernel"):
        return route(x, W, *arguments)


def assert_same_routing(found, x, W, *arguments):
    """Equal within float32's rounding: the reference in double precision says what is right."""
    right = reference(x.double(), W.double(), *arguments)
    plain = reference(x, W, *arguments)
    for here, exact, there in zip(found, right, plain, strict=True):
        size = exact.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        allowed = 1e-5 * size + 4 * (there.double() - exact).abs().amax()
        assert (here.double() - exact).abs().amax() <= allowed


@quick
@given(shapes, st.integers(1, 5), AXES, AGREEMENTS, st.sampled_from([1.0, 0.3, -2.0, 50.0]), st.integers(0, 99))
def test_routing_is_the_references(shape, iterations, normalize, agreement, sharpness, seed):
    x, W = inputs(shape, seed)
    arguments = (iterations, normalize, agreement, sharpness)
    assert_same_routing(by_kernel(x, W, *arguments), x, W, *arguments)


@pytest.mark.parametrize("layout", ["JINM", "JNMI"])
def test_any_layout_of_the_weights_will_do(layout):
    x, W = inputs((5, 40, 3, 4, 6), 1)
    W = W if layout == "JINM" else W.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    assert_same_routing(by_kernel(x.transpose(0, 1).contiguous().transpose(0, 1), W), x, W)


@quick
@given(
    shapes,
    AXES,
    st.lists(st.sampled_from([0.0, 1e-38, 1e-30, 1e-12, 1.0, 1e12, 1e30]), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_extreme_values_give_the_references_finite_results(shape, normalize, scales, seed):
    """Lower capsules of very different lengths: the cosine sees through squares that leave float32."""
    x, W = inputs(shape, seed)
    x = x * torch.tensor(scales)[torch.arange(shape[1]) % len(scales)][None, :, None]
    c, z = by_kernel(x, W, 3, normalize)
    right_c, right_z = reference(x.double(), W.double(), 3, normalize)
    assert torch.isfinite(c).all()
    assert torch.isfinite(z).all()
    if min(s for s in [*scales, 1.0] if s) > 1e-38:  # below float32's smallest a direction is lost anyway
        size = right_z.abs().amax().item()
        torch.testing.assert_close(c.double(), right_c, rtol=1e-3, atol=1e-6)
        torch.testing.assert_close(z.double(), right_z, rtol=1e-3, atol=1e-5 * size + 1e-37)


@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e18])
def test_zero_tiny_and_huge_images(agreement, normalize, scale):
    x, W = inputs((5, 20, 4, 3, 6), 3, scale)
    assert_same_routing(by_kernel(x, W, 3, normalize, agreement), x, W, 3, normalize, agreement)


@pytest.mark.parametrize("sharpness", [59.0, 300.0, -300.0])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_sharp_routing_does_not_overflow(normalize, sharpness):
    """exp(300) is beyond float32: here the largest logit has to be subtracted first."""
    x, W = inputs((3, 20, 1, 4, 2), 5)
    x, W = x.abs(), W.abs()  # all predictions point the same way, so that the cosines are large
    c, _ = by_kernel(x, W, 3, normalize, "cosine", sharpness)
    right, _ = reference(x.double(), W.double(), 3, normalize, "cosine", sharpness)
    torch.testing.assert_close(c.double(), right, rtol=1e-2, atol=1e-4)


def test_what_cannot_be_computed_is_named():
    x, W = inputs((4, 9, 3, 2, 5), 0)
    layer = CapsuleLayer((9, 3), (2, 5))
    for bad in (float("nan"), float("inf")):
        spoiled, spoiled_W = x.clone(), W.clone()
        spoiled[3, 8, 2] = spoiled_W[1, 8, 4, 2] = bad
        with pytest.raises(InputError, match="x contains NaN or infinite"):
            by_kernel(spoiled, W)
        with pytest.raises(InputError, match="W contains NaN or infinite"):
            by_kernel(x, spoiled_W)
        with torch.no_grad(), pytest.raises(InputError, match="x contains NaN"):
            layer(spoiled)
        with pytest.raises(InputError, match="x contains NaN"):
            ContrastiveDivergence().step(layer, spoiled, Noise.for_batch(4))
    for agreement in ("cosine", "dot"):
        with pytest.raises(InputError, match="too large: their product leaves the range of float32"):
            by_kernel(1e30 * x, 1e30 * W, 3, "lower", agreement)


@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_an_image_does_not_depend_on_its_neighbours(normalize):
    x, W = inputs((11, 50, 3, 4, 5), 1)
    whole = by_kernel(x, W, 3, normalize)
    for part in (slice(0, 1), slice(3, 10), slice(5, 7)):
        some = by_kernel(x[part], W, 3, normalize)
        assert torch.equal(some.c, whole.c[part])
        assert torch.equal(some.z, whole.z[part])


def test_several_callers_at_once():
    x, W = inputs((40, 100, 4, 5, 6), 1)
    right, found = route(x, W), []
    callers = [threading.Thread(target=lambda: found.extend(route(x, W) for _ in range(5))) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 20
    assert all(torch.equal(r.z, right.z) and torch.equal(r.c, right.c) for r in found)
