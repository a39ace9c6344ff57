"""The CPU kernels as functions of PyTorch tensors, all float32 on the CPU."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import InputError
from capspoe.kernels import backward, routing, winner
from capspoe.kernels.threads import in_parallel


class Routed(NamedTuple):
    """Routing weights, pre-activations, and the entropy of the weights over the axis of their softmax."""

    c: Float[Tensor, "B J I"]
    z: Float[Tensor, "B J N"]  # the bias included
    entropy: Float[Tensor, "B rest"]


class WinnerGradients(NamedTuple):
    """Gradients of the weights, the visible and the hidden bias; and the mean of (x+ - x-)^2."""

    w_JNMI: Float[Tensor, "J N M I"]
    a: Float[Tensor, "*capsule I M"]
    b: Float[Tensor, "J N"]
    reconstruction: Float[Tensor, ""]


def centred(x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"]) -> Float[Tensor, "B M I"]:
    """x - mu, laid out as the other functions want it; an error if not finite."""
    out = x.new_empty(len(x), x.shape[2], x.shape[1])
    finite_B = np.empty(len(x), np.bool_)
    in_parallel(routing.centre, len(x), array(x), array(mu), array(out), finite_B, moves=2 * x.numel())
    if not finite_B.all():
        raise InputError("x contains NaN or infinite values")
    return out


def packed(rows: Tensor, N: int, Q: int) -> np.ndarray:
    """x (B, 1, M, I) or w (J, N, M, I) in the layout of the kernels."""
    P, _, M, I = rows.shape
    count = -(-P // N) if Q == routing.GROUP else P
    out = np.empty((count, N * M * -(-I // routing.LANES) * routing.LANES), np.float32)
    in_parallel(routing.pack, count, rows.detach().numpy(), N, Q, out, moves=rows.numel())
    return out


def route_relative(
    x_BMI: Float[Tensor, "B M I"],
    w_JNMI: Float[Tensor, "J N M I"],
    iterations: int,
    normalize: str,
    agreement: str,
    sharpness: float,
    scale: float,
    bias: Float[Tensor, "J N"] | None = None,
) -> Routed:
    """Route x through W = scale w; z gets the bias at the end."""
    (batch, M, I), (J, N) = x_BMI.shape, w_JNMI.shape[:2]
    lower = normalize == "lower"
    fan, rest = (I, J) if lower else (J, I)
    if iterations == 1:
        z = torch.einsum("bmi,jnmi->bjn", x_BMI, w_JNMI).mul_(scale / fan)
        c, entropy = (
            x_BMI.new_full((), 1 / fan).expand(batch, J, I),
            x_BMI.new_full((batch, rest), math.log(fan)),
        )
    else:
        # NumPy asks the system for huge pages where a large array gains by them
        c, z, entropy = (
            torch.from_numpy(np.empty((batch, *s), np.float32)) for s in ((J, I), (J, N), (rest,))
        )
        x_, w_ = packed(x_BMI[:, None], routing.GROUP, routing.GROUP), packed(w_JNMI, -(-N // 4) * 4, 2)
        options = (iterations, lower, agreement == "cosine", float(sharpness), float(scale))
        tasks = len(x_) * (J if lower else 1)
        in_parallel(routing.route, tasks, x_, w_, M, options, array(c), array(z), array(entropy))
    # NumPy does this in the time that PyTorch takes to wake its threads
    if not np.isfinite(array(z)).all():
        if not torch.isfinite(w_JNMI).all():
            raise InputError("W contains NaN or infinite values")
        raise InputError("x and W are too large: their product leaves the range of float32")
    if bias is not None:
        z.numpy()[...] += array(bias)
    return Routed(c, z, entropy)


def route_backward(
    gc: Float[Tensor, "B J I"] | None,
    gz: Float[Tensor, "B J N"],
    x: Float[Tensor, "B I M"],
    w_JNMI: Float[Tensor, "J N M I"],
    c: Float[Tensor, "B J I"] | None,
    iterations: int,
    normalize: str,
    agreement: str,
    sharpness: float,
) -> tuple[Float[Tensor, "B I M"], Float[Tensor, "J N M I"]]:
    """Gradients of x and w from those of c and z; with the weights c taken as given if there are any."""
    (B, I, M), (J, N) = x.shape, w_JNMI.shape[:2]
    lower, cosine, L = normalize == "lower", agreement == "cosine" and c is None, routing.LANES
    if iterations == 1:
        share = 1 / (I if lower else J)
        gx = torch.einsum("bjn,jnmi->bim", gz, w_JNMI).mul_(share)
        return gx, torch.empty_like(w_JNMI).copy_(torch.einsum("bjn,bim->jnmi", gz, x)).mul_(share)
    padded, V, K = -(-N // 4) * 4, -(-I // L), 2 * (iterations - 1) if c is None else 1
    x_, w_ = packed(x.transpose(1, 2)[:, None], routing.GROUP, routing.GROUP), packed(w_JNMI, padded, 2)
    vectors = np.zeros((len(x_), J, K + 1, routing.GROUP, padded), np.float32)
    if c is None:
        coefficients = np.zeros((len(x_), V * J * (K + cosine) * routing.GROUP * L), np.float32)
        options = (iterations, lower, cosine, float(sharpness), 1.0)
        tasks = len(x_) * (J if lower else 1)
        gc_BJI = array(gc) if gc is not None else np.empty((0, J, I), np.float32)
        in_parallel(
            backward.gradients_of_u, tasks, x_, w_, M, options, gc_BJI, array(gz), coefficients, vectors
        )
    else:
        coefficients = packed(c[:, None], routing.GROUP, routing.GROUP)
        for k in range(routing.GROUP):
            vectors[: -(-(B - k) // routing.GROUP), :, 0, k, :N] = array(gz)[k :: routing.GROUP]
    gx_, gw_ = np.empty_like(x_), np.empty_like(w_)
    in_parallel(backward.spread, V, x_, w_, M, cosine, coefficients, vectors, gx_, gw_)
    del x_, w_, coefficients  # before there are more arrays of their size
    gx = torch.from_numpy(gx_).view(-1, V, M, routing.GROUP, L).permute(0, 3, 1, 4, 2).reshape(-1, V * L, M)
    gw = torch.empty_like(w_JNMI)  # in the order of w, which is what the optimiser wants
    in_parallel(backward.unpack_w, J, gw_, gw.numpy())
    return gx[:B, :I].contiguous(), gw


def winner_gradients(
    w_JNMI: Float[Tensor, "J N M I"],
    a: Float[Tensor, "*capsule I M"],
    b: Float[Tensor, "J N"],
    mu: Float[Tensor, "I M"],
    x_BMI: Float[Tensor, "B M I"],
    mean_BN: Float[Tensor, "B N"],
    on: Int[Tensor, " B"],
    c: Float[Tensor, "B J I"] | None,
    fan: int,
    k: int,
    mean: Callable[[Tensor], Tensor],
    sample: Callable[[int, Tensor], Tensor],
    uniform: Callable[[int], Tensor] | None,
) -> WinnerGradients:
    """k steps of the chain of the capsules that are on, then the gradients, as means over the batch.

    x_BMI is centred; mean_BN holds the hidden means of the winners `on`. The visible bias a is shared, (I, M), or
    one for each capsule, (J, I, M); so is its gradient. mean(z) gives hidden means, sample(step, mean) draws from
    them, and uniform(step), if any, gives the numbers (B, I, M) with which the visible units are drawn.
    """
    (batch, M, I), (J, N) = x_BMI.shape, w_JNMI.shape[:2]
    on_B = array(on)
    order = np.argsort(on_B, kind="stable")
    a_AMI = array(a.reshape(-1, I, M).transpose(1, 2))
    c_BJI = array(c) if c is not None else np.empty((0, J, I), np.float32)
    z, xm_BMI, end_BN = torch.empty_like(mean_BN), torch.empty_like(x_BMI), mean_BN
    for step in range(k):
        h, drawn = sample(step, end_BN), uniform(step) if uniform else x_BMI.new_empty(0, I, M)
        in_parallel(
            winner.chain, batch, order, array(w_JNMI), a_AMI, array(mu.T), array(b), on_B, array(h), c_BJI,
            np.float32(fan), array(drawn), array(xm_BMI), array(z),
        )  # fmt: skip
        end_BN = mean(z)
    change = (mean_BN - end_BN) / batch
    ends = torch.stack([mean_BN, -end_BN], 1)[torch.from_numpy(order)].reshape(2 * batch, N) / batch
    out = torch.from_numpy(np.zeros(w_JNMI.shape, np.float32))  # PyTorch would wake its threads for this
    in_parallel(
        winner.add_correlation, J, 2 * np.searchsorted(on_B[order], np.arange(J + 1)), np.repeat(order, 2),
        np.arange(2 * batch) % 2 == 1, array(ends), c_BJI, np.float32(fan), array(x_BMI), array(xm_BMI), array(out),
    )  # fmt: skip
    out_a, square = x_BMI.new_empty(len(a_AMI), M, I), x_BMI.new_empty(M * I)
    in_parallel(
        winner.visible_change, M * I, on_B, array(x_BMI).reshape(batch, -1), array(xm_BMI).reshape(batch, -1),
        array(out_a).reshape(-1, M * I), array(square),
    )  # fmt: skip
    out_b = torch.zeros_like(b).index_add_(0, on, change)
    return WinnerGradients(out, out_a.transpose(1, 2).reshape(a.shape), out_b, square.mean())


def add_correlation(
    h: Float[Tensor, "B J N"],
    x_BMI: Float[Tensor, "B M I"],
    c: Float[Tensor, "B J I"] | None,
    fan: int,
    out: Float[Tensor, "J N M I"],
) -> None:
    """out += sum over the batch of r_ij h_j x_i^T, quickly where most h_j are 0."""
    J, x = h.shape[1], array(x_BMI)
    capsule_E, image_E = torch.nonzero(h.abs().sum(-1).T, as_tuple=True)
    start = np.searchsorted(array(capsule_E), np.arange(J + 1))
    c_BJI = array(c) if c is not None else np.empty((0, J, x_BMI.shape[2]), np.float32)
    in_parallel(
        winner.add_correlation, J, start, array(image_E), np.zeros(len(image_E), np.bool_),
        array(h[image_E, capsule_E]), c_BJI, np.float32(fan), x, x, array(out),
    )  # fmt: skip


def array(tensor: Tensor) -> np.ndarray:
    """The same memory for numba, which wants it contiguous."""
    return tensor.detach().contiguous().numpy()
