"""The kernels' face: PyTorch tensors in and out, nothing but float32 on the CPU."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.noise import Noise
from capspoe.routing import Agreement, Normalize, Routing, check_in_range, check_routing_arguments


class Routed(NamedTuple):
    """Routing weights, pre-activations, and the entropy of the weights over the axis of their softmax."""

    c: Float[Tensor, "B J I"]
    z: Float[Tensor, "B J N"]
    entropy: Float[Tensor, "B rest"]


class Chain(NamedTuple):
    """The end of the winners' chain: the visible state less the mean code, and the winners' hidden means."""

    x_BMI: Float[Tensor, "B M I"]
    mean_BN: Float[Tensor, "B N"]


def route(
    x: Float[Tensor, "B I M"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    normalize: Normalize = "lower",
    agreement: Agreement = "cosine",
    sharpness: float = 1.0,
) -> Routing:
    """capspoe.routing.route, without its (B, J, I, N) predictions."""
    check_routing_arguments(x, W, iterations, normalize, agreement)
    w_JNMI = W.permute(0, 2, 3, 1).contiguous()
    c, z, _ = route_relative(x, w_JNMI, iterations, normalize, agreement, sharpness, scale=1.0)
    return Routing(c, z)


def route_relative(
    x: Float[Tensor, "B I M"],
    w_JNMI: Float[Tensor, "J N M I"],
    iterations: int,
    normalize: Normalize,
    agreement: Agreement,
    sharpness: float,
    scale: float,
) -> Routed:
    """Route x through W = scale w."""
    from capspoe.kernels import agreement as parts
    from capspoe.kernels import loops
    from capspoe.kernels.threads import in_parallel

    batch, I, M = x.shape
    J, N = w_JNMI.shape[:2]
    if iterations == 1:
        z = (scale / (I if normalize == "lower" else J)) * flat(x) @ w_JNMI.reshape(J * N, M * I).T
        z = z.reshape(batch, J, N)
        check_in_range(z)
        fan = I if normalize == "lower" else J
        uniform = x.new_full((), 1 / fan).expand(batch, J, I)
        return Routed(uniform, z, x.new_full((), fan).log().expand(batch, J if normalize == "lower" else I))
    vectors = -(-I // parts.LANES)
    groups = batch // parts.IMAGES + batch % parts.IMAGES
    x_ = parts.aligned(batch * vectors * M * parts.LANES)
    zero_ = np.empty((batch, vectors * parts.LANES), np.float32)
    w = array(w_JNMI)
    in_parallel(parts.pack_x, groups, array(x), x_, zero_, batch)
    c, z = x.new_empty(batch, J, I), x.new_empty(batch, J, N)
    common = (iterations, agreement == "cosine", float(sharpness), float(scale), array(c), array(z))
    if normalize == "lower":
        entropy = x.new_empty(batch, J)
        in_parallel(loops.route_lower, J * groups, x_, zero_, w, *common, array(entropy))
    else:
        entropy = x.new_empty(batch, I)
        w_JP = np.empty((J, N * M * vectors * parts.LANES), np.float32)
        in_parallel(loops.pack_all_w, J, w, w_JP)
        in_parallel(loops.route_upper, groups, x_, zero_, w_JP, *common, array(entropy), M)
    check_in_range(z)
    return Routed(c, z, entropy)


# Sums over all capsules with fixed weights, one upper capsule after the other: no (B, J, I, M) is stored.


def preactivation(
    x: Float[Tensor, "B I M"], w_JNMI: Float[Tensor, "J N M I"], r: Float[Tensor, "B J I"] | None
) -> Float[Tensor, "B J N"]:
    """z_j = sum_i r_ij w_ij x_i."""
    J, N, M, I = w_JNMI.shape
    w_JNK = w_JNMI.reshape(J, N, M * I)
    if r is None:
        return (flat(x) @ w_JNK.reshape(J * N, M * I).T).reshape(len(x), J, N)
    x_BMI = x.transpose(1, 2).contiguous()
    buffer, z = torch.empty_like(x_BMI), x.new_empty(len(x), J, N)
    for j in range(J):
        torch.mul(x_BMI, r[:, j, None, :], out=buffer)
        z[:, j] = buffer.view(len(x), M * I) @ w_JNK[j].T
    return z


def reverse(
    h: Float[Tensor, "B J N"], w_JNMI: Float[Tensor, "J N M I"], r: Float[Tensor, "B J I"] | None
) -> Float[Tensor, "B I M"]:
    """sum_j r_ij w_ij^T h_j: what the upper layer says of the lower one."""
    J, N, M, I = w_JNMI.shape
    batch = len(h)
    w_JNK = w_JNMI.reshape(J, N, M * I)
    if r is None:
        total = (h.reshape(batch, J * N) @ w_JNK.reshape(J * N, M * I)).view(batch, M, I)
        return total.transpose(1, 2)
    total, buffer = h.new_zeros(batch, M, I), h.new_empty(batch, M * I)
    for j in range(J):
        torch.mm(h[:, j], w_JNK[j], out=buffer)
        total.addcmul_(buffer.view(batch, M, I), r[:, j, None, :])
    return total.transpose(1, 2)


def correlation(
    h: Float[Tensor, "B J N"], x: Float[Tensor, "B I M"], r: Float[Tensor, "B J I"] | None
) -> Float[Tensor, "J N M I"]:
    """sum over the batch of r_ij h_j x_i^T."""
    (batch, J, N), (I, M) = h.shape, x.shape[1:]
    if r is None:
        return (h.reshape(batch, J * N).T @ flat(x)).view(J, N, M, I)
    x_BMI = x.transpose(1, 2).contiguous()
    buffer, out = torch.empty_like(x_BMI), h.new_empty(J, N, M * I)
    for j in range(J):
        torch.mul(x_BMI, r[:, j, None, :], out=buffer)
        torch.mm(h[:, j].T, buffer.view(batch, M * I), out=out[j])
    return out.view(J, N, M, I)


def negative_winner(
    w_JNMI: Float[Tensor, "J N M I"],
    a: Float[Tensor, "I M"],
    b: Float[Tensor, "J N"],
    mu: Float[Tensor, "I M"],
    x: Float[Tensor, "B I M"],
    mean_BN: Float[Tensor, "B N"],
    on: Int[Tensor, "B"],
    c: Float[Tensor, "B J I"] | None,
    fan: int,
    binary: bool,
    noise: Noise,
    k: int,
    sample_visible: bool,
) -> tuple[Chain, Float[Tensor, "J N M I"], Float[Tensor, "B M I"]]:
    """k steps of the chain of the capsules that are on, then the gradient of the weights.

    mean_BN holds the hidden means of the winners `on`. Gives the chain's end, the mean over the batch of
    r_ij (h+ x+ - h- x-), and x less the mean code.
    """
    from capspoe.kernels import winner
    from capspoe.kernels.threads import in_parallel

    batch, I, M = x.shape
    J, N = w_JNMI.shape[:2]
    w, on_B = array(w_JNMI), array(on)
    order = np.argsort(on_B, kind="stable")
    start = np.searchsorted(on_B[order], np.arange(J + 1))
    a_MI, mu_MI = array(a.T), array(mu.T)
    c_BJI = array(c) if c is not None else np.empty((0, J, I), np.float32)
    image = array(noise.index.to(torch.int64))
    h, z = np.empty((batch, N), np.float32), np.empty((batch, N), np.float32)
    xm_BMI = x.new_empty(batch, M, I)
    mean, factor = mean_BN, np.float32(fan)
    for step in range(k):
        winner.sample_winner(
            array(mean), on_B, image, noise.seed, noise.step, 4 * step + 1, J, binary, h
        )  # the same streams as capspoe.contrastive.negative_phase
        drawn = noise.uniform(4 * step + 2, I, M) if sample_visible else x.new_empty(0, I, M)
        in_parallel(
            winner.chain, batch, order, w, a_MI, mu_MI, array(b), on_B, h, c_BJI, factor, array(drawn),
            array(xm_BMI), z,
        )  # fmt: skip
        mean = torch.from_numpy(z)
        mean = torch.sigmoid(mean) if binary else mean
    xp_BMI = (x - mu).transpose(1, 2).contiguous()
    out = torch.empty_like(w_JNMI)
    in_parallel(
        winner.gradient, J, order, start, c_BJI, factor, array(mean_BN), array(mean), array(xp_BMI),
        array(xm_BMI), array(out),
    )  # fmt: skip
    return Chain(xm_BMI, mean), out, xp_BMI


def flat(x: Float[Tensor, "B I M"]) -> Float[Tensor, "B MI"]:
    """(m, i) in one axis, in the order of the weights."""
    return x.transpose(1, 2).reshape(len(x), -1)


def array(tensor: Tensor) -> np.ndarray:
    """The same memory for numba, which wants it contiguous."""
    return tensor.detach().contiguous().numpy()
