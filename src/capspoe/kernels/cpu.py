"""The CPU kernels as functions of PyTorch tensors, all float32 on the CPU."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.errors import InputError
from capspoe.kernels import backward, routing
from capspoe.kernels.threads import in_parallel


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
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """c and z of x routed through W = scale w; z gets the bias at the end."""
    (batch, M, I), (J, N) = x_BMI.shape, w_JNMI.shape[:2]
    lower = normalize == "lower"
    if iterations == 1:
        share = 1 / (I if lower else J)
        z = torch.einsum("bmi,jnmi->bjn", x_BMI, w_JNMI).mul_(scale * share)
        c = x_BMI.new_full((), share).expand(batch, J, I)
    else:
        # NumPy asks the system for huge pages where a large array gains by them
        c, z = (torch.from_numpy(np.empty((batch, J, size), np.float32)) for size in (I, N))
        x_, w_ = packed(x_BMI[:, None], routing.GROUP, routing.GROUP), packed(w_JNMI, -(-N // 4) * 4, 2)
        options = (iterations, lower, agreement == "cosine", float(sharpness), float(scale))
        tasks = len(x_) * (J if lower else 1)
        in_parallel(routing.route, tasks, x_, w_, M, options, array(c), array(z))
    # NumPy does this in the time that PyTorch takes to wake its threads
    if not np.isfinite(array(z)).all():
        if not torch.isfinite(w_JNMI).all():
            raise InputError("W contains NaN or infinite values")
        raise InputError("x and W are too large: their product leaves the range of float32")
    if bias is not None:
        z.numpy()[...] += array(bias)
    return c, z


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
        in_parallel(backward.gradients_of_u, tasks, x_, w_, M, options, gc_BJI, array(gz), coefficients, vectors)
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


def array(tensor: Tensor) -> np.ndarray:
    """The same memory for numba, which wants it contiguous."""
    return tensor.detach().contiguous().numpy()
