"""The kernels' face: PyTorch tensors in and out, nothing but float32 on the CPU."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import InputError
from capspoe.noise import Noise
from capspoe.routing import Agreement, Normalize, Routing, check_in_range, check_routing_arguments


class Routed(NamedTuple):
    """Routing weights, pre-activations, and the entropy of the weights over the axis of their softmax."""

    c: Float[Tensor, "B J I"]
    z: Float[Tensor, "B J N"]  # the bias included
    entropy: Float[Tensor, "B rest"]


class WinnerGradients(NamedTuple):
    """Gradients of the weights, the visible and the hidden bias; and the mean of (x+ - x-)^2."""

    w_JNMI: Float[Tensor, "J N M I"]
    a: Float[Tensor, "I M"]
    b: Float[Tensor, "J N"]
    reconstruction: Float[Tensor, ""]


def centred(x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"]) -> Float[Tensor, "B M I"]:
    """x - mu, laid out as the other functions want it; an error if not finite."""
    from capspoe.kernels import agreement as parts
    from capspoe.kernels.threads import in_parallel

    out = x.new_empty(len(x), x.shape[2], x.shape[1])
    finite_B = np.empty(len(x), np.bool_)
    in_parallel(parts.centre, len(x), array(x), array(mu), array(out), finite_B, moves=x.numel())
    if not finite_B.all():
        raise InputError("x contains NaN or infinite values")
    return out


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
    x_BMI, w_JNMI = x.transpose(1, 2).contiguous(), W.permute(0, 2, 3, 1).contiguous()
    c, z, _ = route_relative(
        x_BMI, w_JNMI, iterations, normalize, agreement, sharpness, 1.0, x.new_zeros(W.shape[0], W.shape[2])
    )
    return Routing(c, z)


def route_relative(
    x_BMI: Float[Tensor, "B M I"],
    w_JNMI: Float[Tensor, "J N M I"],
    iterations: int,
    normalize: Normalize,
    agreement: Agreement,
    sharpness: float,
    scale: float,
    bias: Float[Tensor, "J N"],
) -> Routed:
    """Route x through W = scale w; z gets the bias at the end."""
    from capspoe.kernels import agreement as parts
    from capspoe.kernels import loops
    from capspoe.kernels.threads import in_parallel

    batch, M, I = x_BMI.shape
    J, N = w_JNMI.shape[:2]
    if iterations == 1:
        fan = I if normalize == "lower" else J
        z = preactivation(x_BMI, w_JNMI, None).mul_(scale / fan)
        finish(z, bias)
        entropy = x_BMI.new_full((batch, J if normalize == "lower" else I), math.log(fan))
        return Routed(x_BMI.new_full((), 1 / fan).expand(batch, J, I), z, entropy)
    vectors = -(-I // parts.LANES)
    groups = batch // parts.IMAGES + batch % parts.IMAGES
    x_ = parts.aligned(batch * vectors * M * parts.LANES)
    zero_ = np.empty((batch, vectors * parts.LANES), np.float32)
    w = array(w_JNMI)
    in_parallel(parts.pack_x, groups, array(x_BMI), x_, zero_, moves=x_BMI.numel())
    c, z = room(batch, J, I), room(batch, J, N)
    common = (iterations, agreement == "cosine", float(sharpness), float(scale), array(c), array(z))
    if normalize == "lower":
        entropy = x_BMI.new_empty(batch, J)
        pieces = J * -(-4 * torch.get_num_threads() // J)  # a border at every j: each turns its weights once
        in_parallel(
            loops.route_lower, J * groups, x_, zero_, w, *common, array(entropy), pieces=pieces
        )  # fmt: skip
    else:
        entropy = x_BMI.new_empty(batch, I)
        w_JP = np.empty((J, N * M * vectors * parts.LANES), np.float32)
        in_parallel(loops.pack_all_w, J, w, w_JP)
        in_parallel(loops.route_upper, groups, x_, zero_, w_JP, *common, array(entropy), M)
    finish(z, bias)
    return Routed(c, z, entropy)


def room(*shape: int) -> Tensor:
    """An empty tensor from NumPy, which asks the system for huge pages where a large array gains by them."""
    return torch.from_numpy(np.empty(shape, np.float32))


def finish(z: Float[Tensor, "B J N"], bias: Float[Tensor, "J N"]) -> None:
    """z += bias, after a look at its range. NumPy does it in the time that PyTorch takes to wake its threads."""
    if not np.isfinite(array(z)).all():
        check_in_range(z)
    z.numpy()[...] += array(bias)


# Sums over all capsules with fixed weights, one upper capsule after the other: no (B, J, I, M) is stored.


def preactivation(
    x_BMI: Float[Tensor, "B M I"], w_JNMI: Float[Tensor, "J N M I"], r: Float[Tensor, "B J I"] | None
) -> Float[Tensor, "B J N"]:
    """z_j = sum_i r_ij w_ij x_i; None stands for r = 1."""
    J, N, M, I = w_JNMI.shape
    batch, w_JNK = len(x_BMI), w_JNMI.reshape(J, N, M * I)
    if r is None:
        return (x_BMI.reshape(batch, M * I) @ w_JNK.reshape(J * N, M * I).T).view(batch, J, N)
    buffer, z = torch.empty_like(x_BMI), x_BMI.new_empty(batch, J, N)
    for j in range(J):
        torch.mul(x_BMI, r[:, j, None, :], out=buffer)
        z[:, j] = buffer.view(batch, M * I) @ w_JNK[j].T
    return z


def reverse(
    h: Float[Tensor, "B J N"], w_JNMI: Float[Tensor, "J N M I"], r: Float[Tensor, "B J I"] | None
) -> Float[Tensor, "B I M"]:
    """sum_j r_ij w_ij^T h_j: what the upper layer says of the lower one; None stands for r = 1."""
    J, N, M, I = w_JNMI.shape
    batch, w_JNK = len(h), w_JNMI.reshape(J, N, M * I)
    if r is None:
        total = (h.reshape(batch, J * N) @ w_JNK.reshape(J * N, M * I)).view(batch, M, I)
        return total.transpose(1, 2)
    total, buffer = h.new_zeros(batch, M, I), h.new_empty(batch, M * I)
    for j in range(J):
        torch.mm(h[:, j], w_JNK[j], out=buffer)
        total.addcmul_(buffer.view(batch, M, I), r[:, j, None, :])
    return total.transpose(1, 2)


def correlation(
    h: Float[Tensor, "B J N"], x_BMI: Float[Tensor, "B M I"], r: Float[Tensor, "B J I"] | None
) -> Float[Tensor, "J N M I"]:
    """sum over the batch of r_ij h_j x_i^T; None stands for r = 1."""
    (batch, J, N), (M, I) = h.shape, x_BMI.shape[1:]
    if r is None:
        return (h.reshape(batch, J * N).T @ x_BMI.reshape(batch, M * I)).view(J, N, M, I)
    buffer, out = torch.empty_like(x_BMI), h.new_empty(J, N, M * I)
    for j in range(J):
        torch.mul(x_BMI, r[:, j, None, :], out=buffer)
        torch.mm(h[:, j].T, buffer.view(batch, M * I), out=out[j])
    return out.view(J, N, M, I)


def winner_gradients(
    w_JNMI: Float[Tensor, "J N M I"],
    a: Float[Tensor, "I M"],
    b: Float[Tensor, "J N"],
    mu: Float[Tensor, "I M"],
    x_BMI: Float[Tensor, "B M I"],
    mean_BN: Float[Tensor, "B N"],
    on: Int[Tensor, " B"],
    c: Float[Tensor, "B J I"] | None,
    fan: int,
    binary: bool,
    noise: Noise,
    k: int,
    sample_visible: bool,
) -> WinnerGradients:
    """k steps of the chain of the capsules that are on, then the gradients, as means over the batch.

    x_BMI is centred; mean_BN holds the hidden means of the winners `on`.
    """
    from capspoe.kernels import winner
    from capspoe.kernels.threads import in_parallel

    batch, M, I = x_BMI.shape
    J, N = w_JNMI.shape[:2]
    w, on_B = array(w_JNMI), array(on)
    order = np.argsort(on_B, kind="stable")
    start = np.searchsorted(on_B[order], np.arange(J + 1))
    a_MI, mu_MI = array(a.T), array(mu.T)
    c_BJI = array(c) if c is not None else np.empty((0, J, I), np.float32)
    image = array(noise.index.to(torch.int64))
    h, z = np.empty((batch, N), np.float32), np.empty((batch, N), np.float32)
    xm_BMI = torch.empty_like(x_BMI)
    mean, factor = mean_BN, np.float32(fan)
    for step in range(k):
        winner.sample_winner(
            array(mean), on_B, image, noise.seed, noise.step, 4 * step + 1, J, binary, h
        )  # the same streams as capspoe.contrastive.negative_phase
        drawn = noise.uniform(4 * step + 2, I, M) if sample_visible else x_BMI.new_empty(0, I, M)
        in_parallel(
            winner.chain, batch, order, w, a_MI, mu_MI, array(b), on_B, h, c_BJI, factor, array(drawn),
            array(xm_BMI), z,
        )  # fmt: skip
        mean = torch.from_numpy(z)
        mean = torch.sigmoid(mean) if binary else mean
    out, out_b = torch.empty_like(w_JNMI), torch.empty_like(b)
    in_parallel(
        winner.gradient, J, order, start, c_BJI, factor, array(mean_BN), array(mean), array(x_BMI),
        array(xm_BMI), array(out), array(out_b),
    )  # fmt: skip
    change, square = x_BMI.new_empty(M, I), x_BMI.new_empty(M * I)
    in_parallel(
        winner.visible_change, M * I, array(x_BMI).reshape(batch, -1), array(xm_BMI).reshape(batch, -1),
        array(change).reshape(-1), array(square),
    )  # fmt: skip
    return WinnerGradients(out, change.T, out_b, square.mean())


def add_correlation(
    h: Float[Tensor, "B J N"],
    x_BMI: Float[Tensor, "B M I"],
    c: Float[Tensor, "B J I"] | None,
    fan: int,
    out: Float[Tensor, "J N M I"],
) -> None:
    """out += sum over the batch of r_ij h_j x_i^T, quickly where most h_j are 0."""
    from capspoe.kernels import winner
    from capspoe.kernels.threads import in_parallel

    J = h.shape[1]
    capsule_E, image_E = torch.nonzero(h.abs().sum(-1).T, as_tuple=True)
    start = np.searchsorted(array(capsule_E), np.arange(J + 1))
    c_BJI = array(c) if c is not None else np.empty((0, J, x_BMI.shape[2]), np.float32)
    in_parallel(
        winner.add_correlation, J, array(image_E), start, c_BJI, np.float32(fan), array(h[image_E, capsule_E]),
        array(x_BMI), array(out),
    )  # fmt: skip


def array(tensor: Tensor) -> np.ndarray:
    """The same memory for numba, which wants it contiguous."""
    return tensor.detach().contiguous().numpy()
