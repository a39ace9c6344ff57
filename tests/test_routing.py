"""Routing against loops written from the two papers, and its properties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capspoe.errors import InputError
from capspoe.routing import on_probability, reverse_route, route, squash


def squash_by_hand(z):
    n = np.linalg.norm(z)
    return n**2 / (1 + n**2) * z / n


def route_by_hand(x, W, iterations):
    """This paper's section 2.2, one image at a time, with nothing but loops."""
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
                    logits[i] += u[i] @ s / (np.linalg.norm(u[i]) * np.linalg.norm(s))
            c_out[b, j], z_out[b, j] = c, z
    return c_out, z_out


def sabour_by_hand(x, W, iterations):
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
                    b[i, j] += u_hat[i, j] @ v[j]
        c_out[n], s_out[n] = c.T, s
    return c_out, s_out


def capsules(rng, B=3, I=5, M=2, J=4, N=3, dtype=torch.float64):
    return (
        torch.randn(B, I, M, generator=rng, dtype=dtype),
        torch.randn(J, I, N, M, generator=rng, dtype=dtype),
    )


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_default_is_this_papers_routing(rng, iterations):
    x, W = capsules(rng)
    c, z = route(x, W, iterations)
    c_hand, z_hand = route_by_hand(x.numpy(), W.numpy(), iterations)
    np.testing.assert_allclose(c, c_hand, atol=1e-12)
    np.testing.assert_allclose(z, z_hand, atol=1e-12)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_upper_axis_and_dot_agreement_are_sabours_routing(rng, iterations):
    x, W = capsules(rng)
    c, z = route(x, W, iterations, normalize="upper", agreement="dot")
    c_hand, z_hand = sabour_by_hand(x.numpy(), W.numpy(), iterations)
    np.testing.assert_allclose(c, c_hand, atol=1e-12)
    np.testing.assert_allclose(z, z_hand, atol=1e-12)


def test_three_iterations_is_the_default(rng):
    x, W = capsules(rng)
    assert torch.equal(route(x, W).c, route(x, W, 3).c)
    assert not torch.allclose(route(x, W).c, route(x, W, 2).c)


def test_sharpness_scales_the_agreement(rng):
    x, W = capsules(rng)
    sharp = route(x, W, 2, sharpness=2.5)
    u = torch.einsum("jinm,bim->bjin", W, x)
    cosine = torch.nn.functional.cosine_similarity(u, u.mean(2, keepdim=True), dim=-1)
    torch.testing.assert_close(sharp.c, torch.softmax(2.5 * cosine, -1))


def test_squash_and_on_probability(rng):
    z = torch.randn(7, 4, generator=rng, dtype=torch.float64)
    np.testing.assert_allclose(squash(z), [squash_by_hand(row) for row in z.numpy()], atol=1e-12)
    torch.testing.assert_close(on_probability(z), squash(z).norm(dim=-1))


axes = st.sampled_from(["lower", "upper"])
agreements = st.sampled_from(["cosine", "dot"])
sizes = st.integers(1, 6)
seeds = st.integers(0, 10**6)
dtypes = st.sampled_from([torch.float32, torch.float64])


@given(sizes, sizes, sizes, sizes, sizes, seeds, axes, agreements, dtypes)
def test_weights_sum_to_one_over_the_named_axis(B, I, M, J, N, seed, normalize, agreement, dtype):
    x, W = capsules(torch.Generator().manual_seed(seed), B, I, M, J, N, dtype)
    c, z = route(x, W, normalize=normalize, agreement=agreement)
    assert c.shape == (B, J, I)
    assert z.shape == (B, J, N)
    total = c.sum(2 if normalize == "lower" else 1)
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (c > 0).all()
    torch.testing.assert_close(z, torch.einsum("bji,jinm,bim->bjn", c, W, x), rtol=1e-3, atol=1e-4)


@given(seeds, axes, agreements)
def test_relabelling_capsules_relabels_the_result(seed, normalize, agreement):
    rng = torch.Generator().manual_seed(seed)
    x, W = capsules(rng)
    lower, upper = torch.randperm(5, generator=rng), torch.randperm(4, generator=rng)
    c, z = route(x, W, normalize=normalize, agreement=agreement)
    c_new, z_new = route(x[:, lower], W[upper][:, lower], normalize=normalize, agreement=agreement)
    torch.testing.assert_close(c_new, c[:, upper][:, :, lower])
    torch.testing.assert_close(z_new, z[:, upper])


@given(seeds, axes, st.floats(1e-6, 1e6))
def test_cosine_routing_ignores_the_scale_of_W(seed, normalize, scale):
    x, W = capsules(torch.Generator().manual_seed(seed))
    torch.testing.assert_close(route(x, W * scale, normalize=normalize).c, route(x, W, normalize=normalize).c)


@given(seeds)
def test_reverse_routing_of_a_single_capsule_is_uniform(seed):
    rng = torch.Generator().manual_seed(seed)
    _, W = capsules(rng)
    h = torch.zeros(3, 4, 3, dtype=torch.float64)
    h[torch.arange(3), torch.randint(4, (3,), generator=rng)] = torch.randn(3, 3, generator=rng).double()
    c, z = reverse_route(h, W)
    torch.testing.assert_close(c, torch.full_like(c, 1 / 5))
    torch.testing.assert_close(z, torch.einsum("jinm,bjn->bim", W, h) / 5)


@given(seeds)
def test_reverse_routing_sums_to_one_over_the_lower_capsules(seed):
    rng = torch.Generator().manual_seed(seed)
    _, W = capsules(rng)
    c, z = reverse_route(torch.randn(3, 4, 3, generator=rng, dtype=torch.float64), W)
    assert c.shape == (3, 4, 5)
    assert z.shape == (3, 5, 2)
    torch.testing.assert_close(c.sum(2), torch.ones(3, 4, dtype=torch.float64))
    assert c.std() > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize(
    ("of_x", "of_W"), [(0, 1), (1, 0), (1e-30, 1), (1, 1e-30), (1e30, 1), (1, 1e30), (1e-30, 1e-30)]
)
def test_extreme_values_stay_finite(rng, dtype, agreement, normalize, of_x, of_W):
    x, W = capsules(rng, dtype=dtype)
    c, z = route(x * of_x, W * of_W, normalize=normalize, agreement=agreement)
    assert torch.isfinite(c).all()
    assert torch.isfinite(z).all()
    assert torch.isfinite(squash(z)).all()
    assert ((on_probability(z) >= 0) & (on_probability(z) <= 1)).all()
    total = c.sum(2 if normalize == "lower" else 1)
    torch.testing.assert_close(total, torch.ones_like(total))
    if agreement == "cosine" and of_x and of_W and (of_x, of_W) != (1e-30, 1e-30):
        torch.testing.assert_close(c, route(x, W, normalize=normalize).c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squash_keeps_the_direction_at_any_scale_and_has_a_finite_gradient(scale, dtype):
    z = (torch.tensor([3.0, 0.0, -4.0], dtype=dtype) * scale).requires_grad_()
    squashed = squash(z)
    squashed.sum().backward()
    assert torch.isfinite(z.grad).all()
    if scale == 1e30:
        torch.testing.assert_close(squashed.detach(), torch.tensor([0.6, 0.0, -0.8], dtype=dtype))
    if scale <= 1e-30:
        assert squashed.abs().max() < 1e-29


def test_a_product_beyond_the_range_is_said_clearly(rng):
    x, W = capsules(rng, dtype=torch.float32)
    with pytest.raises(InputError, match=r"too large.*float32"):
        route(x * 1e30, W * 1e30)
    assert torch.isfinite(route(x.double() * 1e30, W.double() * 1e30).z).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, W: (x[0], W), r"x must have shape \(B, I, M\)"),
        (lambda x, W: (x, W[:, :4]), r"W must have shape \(J, I=5, N, M=2\)"),
        (lambda x, W: (x, W[..., :1]), "W must have shape"),
        (lambda x, W: (x.float(), W), "W is float64 but must be float32"),
        (lambda x, W: (x.long(), W), "x must be float32 or float64, not int64"),
        (lambda x, W: (x[:0], W), "x is empty"),
        (lambda x, W: (x.numpy(), W), "x must be a torch.Tensor"),
        (lambda x, W: (x / 0, W), "x contains NaN or infinite"),
        (lambda x, W: (x, W * float("nan")), "W contains NaN or infinite"),
    ],
)
def test_wrong_tensors_are_named(rng, change, message):
    with pytest.raises(InputError, match=message):
        route(*change(*capsules(rng)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "iterations must be a whole number of 1 or more"),
        ({"iterations": 2.0}, "iterations"),
        ({"normalize": "i"}, "normalize must be one of 'lower', 'upper'"),
        ({"agreement": "euclid"}, "agreement must be one of 'cosine', 'dot'"),
    ],
)
def test_wrong_options_are_named(rng, options, message):
    with pytest.raises(InputError, match=message):
        route(*capsules(rng), **options)
