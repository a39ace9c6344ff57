"""The benchmark's own arithmetic and the layers it compares with; no test looks at how long anything takes."""

import math

import numpy as np
import pytest
import torch
from benchmarks.speed import kernels
from benchmarks.speed.peers import PEERS, plain_routing


def squash(z):
    n = np.linalg.norm(z)
    return n * z / (1 + n**2)


def by_hand(x, W, lower):
    """Three iterations for one image, with loops; `lower` is the softmax over the lower capsules."""
    J, I, _, _ = W.shape
    u = np.array([[W[j, i] @ x[i] for i in range(I)] for j in range(J)])
    b = np.zeros((J, I))
    for _ in range(3):
        c = np.exp(b) / np.exp(b).sum(1 if lower else 0, keepdims=True)
        v = [squash(sum(c[j, i] * u[j, i] for i in range(I))) for j in range(J)]
        b = b + [[u[j, i] @ v[j] for i in range(I)] for j in range(J)]
    return np.array(v)


@pytest.mark.parametrize("name", [*PEERS, *kernels.OURS])
def test_every_layer_computes_its_papers_routing(name):
    x, W = kernels.inputs((2, 6, 3, 4, 5))
    W = 10 * W  # weights for which routing matters
    routed = (PEERS | kernels.OURS)[name](x, W)
    for image, capsules in zip(x.numpy(), routed.numpy(), strict=True):
        np.testing.assert_allclose(capsules, by_hand(image, W.numpy(), "gram-ai" in name), rtol=1e-4, atol=1e-5)


def test_the_plain_einsum_computes_what_route_does():
    x, W = kernels.inputs((2, 6, 3, 4, 5))
    W = 10 * W
    torch.testing.assert_close(plain_routing(x, W), kernels.route(x, W).z, rtol=1e-4, atol=1e-5)


def test_gradients_of_ours_are_those_of_the_peers():
    shape = (2, 6, 3, 4, 5)
    for ours, peer in (
        ("capspoe.route", "einsum layer"),
        ("capspoe.route, detach_routing", "DenseCapsule (XifengGuo)"),
    ):
        own_gradients = kernels.forward_backward(kernels.OURS[ours], shape)()
        peer_gradients = kernels.forward_backward(PEERS[peer], shape)()
        for one, other in zip(own_gradients, peer_gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_the_sides_take_turns_and_a_side_that_fails_is_left_out():
    order = []

    def broken():
        order.append("b")
        raise RuntimeError("no C++ compiler")

    best = kernels.interleaved({"a": lambda: order.append("a"), "b": broken}, 3)
    turns = "".join(order).split("b")
    assert len(turns) == 2
    assert best["a"] >= 0
    assert math.isnan(best["b"])


def test_what_counts_as_reached():
    assert kernels.Row("x", "y", 31, 30).reached
    assert not kernels.Row("x", "y", 29, 30).reached
    assert kernels.Row("x", "y", 0.2, 0.25, at_most=True).reached
    assert not kernels.Row("x", "y", math.nan, 18).reached


def test_memory_of_a_layer_is_that_of_its_predictions():
    """64 x 10 x 1152 x 16 floats are 45 MB; an einsum layer with its gradients holds them more than twice."""
    assert kernels.peak_memory("einsum layer") > 90
