"""Routing against loops written from both papers, its properties, and its derivatives."""

import copy
import math
import typing

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capspoe import kernels
from capspoe.config import Config
from capspoe.errors import InputError
from capspoe.kernels import dispatch
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import AGREEMENTS, Agreement, find_agreement, reverse_route, route, squash, squash_length

F64 = torch.float64
KINDS = pytest.mark.parametrize(("normalize", "agreement"), [("lower", "cosine"), ("upper", "dot")])


def squash_by_hand(z):
    n = np.linalg.norm(z)
    return n**2 / (1 + n**2) * z / n


def route_by_hand(x, W, iterations, sharpness):
    """Section 2.2 of this paper, one image at a time, with nothing but loops."""
    J, I, N, _ = W.shape
    c_out, z_out = np.zeros((len(x), J, I)), np.zeros((len(x), J, N))
    for b in range(len(x)):
        for j in range(J):
            u = [W[j, i] @ x[b, i] for i in range(I)]
            logits = [0.0] * I
            for _ in range(iterations):
                total = sum(math.exp(logit) for logit in logits)
                c = [math.exp(logit) / total for logit in logits]
                z = sum(c[i] * u[i] for i in range(I))
                s = squash_by_hand(z)
                for i in range(I):
                    logits[i] += sharpness * u[i] @ s / (np.linalg.norm(u[i]) * np.linalg.norm(s))
            c_out[b, j], z_out[b, j] = c, z
    return c_out, z_out


def sabour_by_hand(x, W, iterations, sharpness):
    """Procedure 1 of Sabour, Frosst and Hinton 2017: softmax over the parents, agreement u . v."""
    J, I, N, _ = W.shape
    c_out, s_out = np.zeros((len(x), J, I)), np.zeros((len(x), J, N))
    for n in range(len(x)):
        u_hat = {(i, j): W[j, i] @ x[n, i] for i in range(I) for j in range(J)}
        b = np.zeros((I, J))
        for _ in range(iterations):
            c = np.stack([np.exp(b[i]) / np.exp(b[i]).sum() for i in range(I)])
            s = [sum(c[i, j] * u_hat[i, j] for i in range(I)) for j in range(J)]
            v = [squash_by_hand(s_j) for s_j in s]
            for i in range(I):
                for j in range(J):
                    b[i, j] += sharpness * u_hat[i, j] @ v[j]
        c_out[n], s_out[n] = c.T, s
    return c_out, s_out


def capsules(rng, B=3, I=5, M=2, J=4, N=3, dtype=F64):
    x = torch.randn(B, I, M, generator=rng, dtype=dtype)
    return x, torch.randn(J, I, N, M, generator=rng, dtype=dtype)


sizes = st.tuples(*[st.integers(1, 5)] * 5)


@KINDS
@given(sizes, st.integers(1, 5), st.sampled_from([1.0, 2.5]), st.integers(0, 10**6))
def test_both_papers(normalize, agreement, sizes, iterations, sharpness, seed):
    x, W = capsules(torch.Generator().manual_seed(seed), *sizes)
    c, z = route(x, W, iterations, normalize, agreement, sharpness)
    by_hand = route_by_hand if normalize == "lower" else sabour_by_hand
    c_hand, z_hand = by_hand(x.numpy(), W.numpy(), iterations, sharpness)
    np.testing.assert_allclose(c, c_hand, atol=1e-9)
    np.testing.assert_allclose(z, z_hand, atol=1e-9)


def plain_cosine(u, z):
    return torch.cosine_similarity(u, z[:, :, None], dim=-1)


def negative_distance(u, z):
    return -(u - z[:, :, None]).square().sum(-1)


def by_distance(x, W, iterations):
    """Routing by the negative squared distance, one image and upper capsule at a time."""
    c_out = np.zeros((len(x), *W.shape[:2]))
    for b in range(len(x)):
        for j in range(len(W)):
            u = np.stack([W[j, i] @ x[b, i] for i in range(W.shape[1])])
            logits = np.zeros(W.shape[1])
            for _ in range(iterations):
                c = np.exp(logits) / np.exp(logits).sum()
                logits = logits - ((u - c @ u) ** 2).sum(1)
            c_out[b, j] = c
    return c_out


def test_an_agreement_can_be_a_function(rng):
    x, W = capsules(rng)
    c, z = route(x, W, agreement=negative_distance)
    np.testing.assert_allclose(c, by_distance(x.numpy(), W.numpy(), 3), atol=1e-12)
    torch.testing.assert_close(z, torch.einsum("bji,jinm,bim->bjn", c, W, x))


@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_a_function_where_the_kernels_would_run(rng, normalize):
    """float32 on the CPU, with gradients and under torch.compile: the same as the name of that agreement."""
    x, W = (tensor.requires_grad_() for tensor in capsules(rng, dtype=torch.float32))

    def gradients(agreement, function=route):
        c, z = function(x, W, 3, normalize, agreement)
        return c, z, *torch.autograd.grad(c.sin().sum() + z.sin().sum(), (x, W))

    by_name = gradients("cosine")
    compiled = torch.compile(route, backend="eager", fullgraph=True)
    for by_function in (gradients(plain_cosine), gradients(plain_cosine, compiled)):
        for one, other in zip(by_function, by_name, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    with kernels.use("kernel"), pytest.raises(InputError, match="the kernels need"):
        route(x, W, agreement=plain_cosine)


def test_the_names_are_those_of_the_settings():
    choices = typing.get_args(typing.get_type_hints(Config)["agreement"])
    assert set(choices) == set(AGREEMENTS) >= set(dispatch.AGREEMENTS)
    for name, agreement in AGREEMENTS.items():
        assert find_agreement(name) is find_agreement(agreement) is agreement
        assert copy.deepcopy(agreement).name == name
    assert find_agreement(plain_cosine).name is None


@pytest.mark.parametrize("name", AGREEMENTS)
def test_reverse_routing_of_a_single_capsule_is_uniform_where_only_angles_count(rng, name):
    _, W = capsules(rng)
    h = torch.zeros(3, 4, 3, dtype=F64)
    h[range(3), [2, 0, 2]] = torch.randn(3, 3, generator=rng, dtype=F64)
    c = reverse_route(h, W, agreement=name).c
    assert torch.allclose(c, torch.full_like(c, 1 / 5)) == AGREEMENTS[name].angle_only


def test_a_layer_takes_a_function_and_knows_when_reverse_routing_is_uniform(rng):
    x = torch.rand(6, 5, 2, generator=rng)
    h = torch.zeros(6, 4, 3)
    h[:, 1] = torch.randn(6, 3, generator=rng)
    options = {"lower": (5, 2), "upper": (4, 3), "initial_std": 0.3, "seed": 0}
    named = CapsuleLayer(**options)
    by_function = CapsuleLayer(**options, agreement=plain_cosine)
    with torch.no_grad():
        torch.testing.assert_close(by_function(x), named(x), rtol=1e-4, atol=1e-5)
        c = by_function.reverse(h)  # nothing is known about a function, so its weights are computed
        torch.testing.assert_close(c, torch.full_like(c, 1 / 5))
    assert CapsuleLayer(**options, agreement=Agreement(plain_cosine, angle_only=True)).reverse(h) is None
    assert named.reverse(h) is None
    assert CapsuleLayer(**options, agreement="dot").reverse(h) is not None


def test_defaults_are_this_papers(rng):
    x, W = capsules(rng)
    assert torch.equal(route(x, W).c, route(x, W, 3, "lower", "cosine", 1.0).c)


def test_reverse_routing_exchanges_the_layers(rng):
    """Each lower capsule takes the upper ones' predictions W_ij^T h_j; the weights still sum to 1 over i."""
    _, W = capsules(rng)
    h = torch.randn(3, 4, 3, generator=rng, dtype=F64)
    c, z = reverse_route(h, W, 3, "dot", 2.5)
    c_hand, z_hand = sabour_by_hand(h.numpy(), W.permute(1, 0, 3, 2).numpy(), 3, 2.5)
    np.testing.assert_allclose(c, c_hand.swapaxes(1, 2), atol=1e-12)
    np.testing.assert_allclose(z, z_hand, atol=1e-12)
    torch.testing.assert_close(c.sum(2), torch.ones(3, 4, dtype=F64))


def test_reverse_routing_of_a_single_capsule_is_uniform(rng):
    _, W = capsules(rng)
    h = torch.zeros(3, 4, 3, dtype=F64)
    h[range(3), [2, 0, 2]] = torch.randn(3, 3, generator=rng, dtype=F64)
    c, z = reverse_route(h, W)
    torch.testing.assert_close(c, torch.full_like(c, 1 / 5))
    torch.testing.assert_close(z, torch.einsum("jinm,bjn->bim", W, h) / 5)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("scales", [(0, 1), (1e-30, 1), (1, 1e30), (1e-30, 1e-30)])
def test_extreme_values_stay_finite(rng, dtype, normalize, agreement, scales):
    x, W = capsules(rng, dtype=dtype)
    c, z = route(x * scales[0], W * scales[1], normalize=normalize, agreement=agreement)
    assert torch.isfinite(z).all()
    assert torch.isfinite(squash(z)).all()
    total = c.sum(2 if normalize == "lower" else 1)
    torch.testing.assert_close(total, torch.ones_like(total))
    if agreement == "cosine" and scales in [(1e-30, 1), (1, 1e30)]:
        torch.testing.assert_close(c, route(x, W, normalize=normalize).c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 0.01, 1.0, 1e30])
def test_squash_keeps_the_direction_at_any_scale_and_has_a_finite_gradient(scale):
    z = (torch.tensor([3.0, 0.0, -4.0]) * scale).requires_grad_()
    squashed = squash(z)
    squashed.sum().backward()
    assert torch.isfinite(z.grad).all()
    length = 1 - 1 / (1 + (5 * scale) ** 2)
    torch.testing.assert_close(squashed.detach(), length * torch.tensor([0.6, 0.0, -0.8]))
    torch.testing.assert_close(squash_length(z).item(), length)


@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
def test_gradients_against_finite_differences(rng, normalize, agreement):
    x, W = (tensor.requires_grad_() for tensor in capsules(rng))

    def everything(x, W):
        c, z = route(x, W, 3, normalize, agreement)
        return c, z, squash(z)

    assert torch.autograd.gradcheck(everything, (x, W), fast_mode=True)


@KINDS
def test_detached_routing_takes_the_weights_as_constants(rng, normalize, agreement):
    x, W = (tensor.requires_grad_() for tensor in capsules(rng))
    c, z = route(x, W, 3, normalize, agreement, detach_routing=True)
    whole = route(x, W, 3, normalize, agreement)
    assert torch.equal(z, whole.z)
    assert not c.requires_grad
    fixed, found, through = (
        torch.autograd.grad(out.square().sum(), (x, W))
        for out in (torch.einsum("bji,jinm,bim->bjn", c, W, x), z, whole.z)
    )
    torch.testing.assert_close(found, fixed)
    assert not torch.allclose(through[1], found[1])


def test_a_product_out_of_range_is_refused(rng):
    x, W = capsules(rng, dtype=torch.float32)
    with pytest.raises(InputError, match=r"too large.*float32"):
        route(x * 1e30, W * 1e30)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, W: (x[0], W), r"x must have shape \(B, I, M\)"),
        (lambda x, W: (x, W[:, :4]), r"W must have shape \(J, I=5, N, M=2\)"),
        (lambda x, W: (x.float(), W), "W is float64 but must be float32"),
        (lambda x, W: (x.long(), W), "x must be float32 or float64, not int64"),
        (lambda x, W: (x.numpy(), W), r"x must be a torch.Tensor, not ndarray"),
        (lambda x, W: (x[:0], W), "x is empty"),
        (lambda x, W: (x, W * math.nan), "W contains NaN"),
        (lambda x, W: (x, W, 0), "iterations must be an integer of 1 or more, not 0"),
        (lambda x, W: (x, W, True), "iterations must be an integer"),
        (lambda x, W: (x, W, 3, "i"), "normalize must be one of 'lower', 'upper', not 'i'"),
        (lambda x, W: (x, W, 3, "lower", "euclid"), "agreement must be one of 'cosine', 'dot'"),
        (lambda x, W: (x, W, 3, "lower", None), "agreement must be one of 'cosine', 'dot', not None"),
        (lambda x, W: (x, W, 3, "lower", lambda u, z: z), r"agreement must have shape \(3, 4, 5\), not \(3, 4, 3\)"),
        (lambda x, W: (x, W, 3, "lower", lambda u, z: u.sum(-1)[..., :1]), r"not \(3, 4, 1\)"),
    ],
)
def test_wrong_arguments_are_named(rng, change, message):
    with pytest.raises(InputError, match=message):
        route(*change(*capsules(rng)))
