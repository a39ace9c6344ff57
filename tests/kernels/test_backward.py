"""Gradients of routing by the kernels against autograd through the reference in double precision."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.test_routing import AGREEMENTS, AXES, inputs, shapes

from capspoe import kernels
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import reference, route


def gradients(function, x, W, *arguments):
    """Of both results, each with its own random weights, where it has a gradient."""
    x, W = x.detach().requires_grad_(), W.detach().requires_grad_()
    results = [r for r in function(x, W, *arguments) if r.requires_grad]
    rng = torch.Generator().manual_seed(0)
    given = [torch.randn(r.shape, generator=rng).to(r) for r in results]
    return torch.autograd.grad(results, (x, W), given)


def assert_same_gradients(x, W, *arguments, rtol=1e-4):
    with kernels.use("kernel"):
        found = gradients(route, x, W, *arguments)
    plain = gradients(reference, x, W, *arguments)
    for one, there, exact in zip(found, plain, gradients(reference, x.double(), W.double(), *arguments), strict=True):
        allowed = rtol * exact.abs().amax() + 4 * (there.double() - exact).abs().amax() + 1e-30
        assert (one.double() - exact).abs().amax() <= allowed


@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("detach", [False, True])
def test_the_references_gradients_are_those_of_finite_differences(normalize, agreement, detach):
    x, W = inputs((1, 3, 2, 2, 2), 0)
    x, W = x.double().requires_grad_(), W.double().requires_grad_()
    c = reference(x, W, 3, normalize, agreement)[0].detach()

    def z(x, W):
        if detach:  # finite differences cannot see that c is taken as given: it is put in
            return torch.einsum("bji,jinm,bim->bjn", c, W, x)
        return reference(x, W, 3, normalize, agreement)

    assert torch.autograd.gradcheck(z, (x, W), fast_mode=True)
    if detach:
        found = gradients(lambda x, W: reference(x, W, 3, normalize, agreement, 1.0, True), x, W)
        for one, other in zip(found, gradients(lambda x, W: [z(x, W)], x, W), strict=True):
            torch.testing.assert_close(one, other)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    shapes,
    st.integers(1, 4),
    AXES,
    AGREEMENTS,
    st.sampled_from([1.0, 0.3, -2.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_gradients_are_the_references(shape, iterations, normalize, agreement, sharpness, detach, seed):
    assert_same_gradients(*inputs(shape, seed), iterations, normalize, agreement, sharpness, detach)


@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_capsules_that_are_zero_have_finite_gradients(normalize):
    x, W = inputs((3, 20, 4, 3, 6), 3)
    x[:, ::3] = 0  # a direction that does not exist has no gradient
    assert_same_gradients(x, W, 3, normalize)
    found = gradients(route, x, W, 3, normalize)
    assert all(torch.isfinite(g).all() and g.abs().amax() > 0 for g in found)
    assert all((g == 0).all() for g in gradients(route, 0 * x, W, 3, normalize)[1:])


def test_a_gradient_of_c_alone_of_z_alone_and_of_the_weights_alone():
    x, W = inputs((3, 20, 4, 3, 6), 3)
    for result in (0, 1):
        assert_same_gradients_of(
            lambda *a, f=route, r=result: [f(*a)[r]], lambda *a, r=result: [reference(*a)[r]], x, W
        )
    found = torch.autograd.grad(route(x, W.requires_grad_()).z.sum(), W)
    torch.testing.assert_close(found, torch.autograd.grad(reference(x, W)[1].sum(), W), rtol=1e-3, atol=1e-4)


def assert_same_gradients_of(function, other, x, W):
    for one, right in zip(gradients(function, x, W), gradients(other, x, W), strict=True):
        torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-4)


def test_gradients_can_be_differentiated_again():
    x, W = inputs((2, 6, 3, 2, 4), 1)

    def penalty(function, x, W):
        x, W = x.detach().requires_grad_(), W.detach().requires_grad_()
        (gx,) = torch.autograd.grad(function(x, W)[1].square().sum(), x, create_graph=True)
        return torch.autograd.grad(gx.square().sum(), (x, W))

    for one, other in zip(penalty(route, x, W), penalty(reference, x.double(), W.double()), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_a_layer_inside_a_network_learns_by_the_kernels():
    layer = CapsuleLayer((20, 3), (4, 5), gate="none", initial_std=0.3)
    layer.start_from(torch.rand(20, 3) * 0.8 + 0.1)
    x = torch.rand(6, 20, 3, requires_grad=True)
    results = []
    for backend in ("kernel", "reference"):
        with kernels.use("auto" if backend == "kernel" else backend):
            c, z = layer(x)
            results.append(torch.autograd.grad(z.square().sum() + c.square().sum(), (x, layer.w_JNMI, layer.b)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
