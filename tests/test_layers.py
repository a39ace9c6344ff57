"""Layers inside other people's networks: derivatives, torch.compile, torch.func."""

import pytest
import torch
from torch.autograd import forward_ad

from capspoe import CapsuleLayer, kernels, route, squash
from capspoe.routing import on_probability

F64 = torch.float64
KINDS = [("lower", "cosine"), ("upper", "dot"), ("upper", "cosine"), ("lower", "dot")]


def capsules(rng, dtype=F64):
    return torch.randn(2, 5, 3, generator=rng, dtype=dtype), torch.randn(
        4, 5, 2, 3, generator=rng, dtype=dtype
    )


@pytest.mark.parametrize(("normalize", "agreement"), KINDS)
def test_gradients_of_route_against_finite_differences(rng, normalize, agreement):
    x, W = (tensor.requires_grad_() for tensor in capsules(rng))
    assert torch.autograd.gradcheck(
        lambda x, W: tuple(route(x, W, 3, normalize, agreement)), (x, W), fast_mode=True
    )
    assert torch.autograd.gradcheck(
        lambda x, W: squash(route(x, W, 3, normalize, agreement).z), (x, W), fast_mode=True
    )


@pytest.mark.parametrize(("normalize", "agreement"), KINDS)
def test_detached_routing_takes_the_weights_as_given(rng, normalize, agreement):
    x, W = (tensor.requires_grad_() for tensor in capsules(rng))
    c, z = route(x, W, 3, normalize, agreement, detach_routing=True)
    whole = route(x, W, 3, normalize, agreement)
    assert torch.equal(z, whole.z)
    assert not c.requires_grad
    direction = torch.randn(z.shape, generator=rng, dtype=F64)
    got = torch.autograd.grad((z * direction).sum(), (x, W))
    fixed = torch.einsum("bji,jinm,bim->bjn", c, W, x)
    for mine, expected in zip(got, torch.autograd.grad((fixed * direction).sum(), (x, W)), strict=True):
        torch.testing.assert_close(mine, expected)
    through = torch.autograd.grad((whole.z * direction).sum(), (x, W))
    assert not torch.allclose(through[1], got[1])


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("iterations", [1, 3])
def test_a_layer_between_others_learns(rng, detach, iterations):
    options = {"gate": "none", "normalize": "upper", "agreement": "dot", "detach_routing": detach}
    layer = CapsuleLayer((6, 4), (3, 5), iterations, **options)
    below = torch.nn.Linear(7, 24)
    optimizer = torch.optim.Adam([*below.parameters(), *layer.parameters()], 0.02)
    inputs, labels = torch.randn(30, 7, generator=rng), torch.arange(30) % 3
    for step in range(40):
        length = on_probability(layer(below(inputs).reshape(30, 6, 4)).z)
        loss = torch.nn.functional.cross_entropy(8 * length, labels)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            first = loss.item()
            assert all(p.grad.abs().sum() > 0 for p in (below.weight, layer.w_JNMI, layer.b))
        optimizer.step()
    assert loss.item() < 0.7 * first


def test_kernels_never_stand_in_the_way_of_a_derivative(rng):
    layer = CapsuleLayer((5, 3), (4, 2)).requires_grad_(False)
    x, _ = capsules(rng, torch.float32)
    assert kernels.chosen(x, layer.w_JNMI)
    c = layer(x).c.requires_grad_()
    assert layer.preactivation(x, c).requires_grad
    assert layer.visible_given_hidden(torch.rand(2, 4, 2), c).requires_grad
    assert layer(x.clone().requires_grad_()).z.requires_grad
    step = torch.randn(x.shape, generator=rng)
    with forward_ad.dual_level():
        forwards = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, step)).z).tangent
    _, also = torch.func.jvp(lambda x: layer(x).z, (x,), (step,))
    with torch.no_grad(), kernels.use("reference"):
        difference = (layer(x + 1e-2 * step).z - layer(x - 1e-2 * step).z) / 2e-2
    torch.testing.assert_close(forwards, difference, rtol=0.02, atol=1e-3)
    torch.testing.assert_close(also, forwards)


def test_a_gradient_for_each_image_by_torch_func(rng):
    layer = CapsuleLayer((5, 3), (4, 2))
    x, _ = capsules(rng, torch.float32)
    parameters = {"w_JNMI": layer.w_JNMI.detach()}

    def loss(parameters, image):
        return torch.func.functional_call(layer, parameters, (image[None],)).z.square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, x)["w_JNMI"]
    layer(x).z.square().sum().backward()
    torch.testing.assert_close(each.sum(0), layer.w_JNMI.grad)


def test_torch_compile_takes_a_layer_whole(rng):
    layer = CapsuleLayer((5, 3), (4, 2))
    x, _ = capsules(rng, torch.float32)

    def run(layer, x):
        c, z = layer(x)
        return layer.on_given_visible(z), layer.visible_given_hidden(z, c)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for got, expected in zip(compiled(layer, x), run(layer, x), strict=True):
        torch.testing.assert_close(got, expected)
    compiled(layer, x)[1].sum().backward()
    got = layer.w_JNMI.grad.clone()
    layer.zero_grad()
    run(layer, x)[1].sum().backward()
    torch.testing.assert_close(got, layer.w_JNMI.grad)
