"""The CPU kernels as functions of PyTorch tensors, all float32 on the CPU."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from capspoe.errors import InputError
from capspoe.kernels import backward, routing
from capspoe.kernels.panel import GROUP, LANES
from capspoe.kernels.threads import in_parallel

How = tuple[int, str, str, float]  # iterations, normalize, agreement, sharpness


def route_relative(
    x: Float[Tensor, "B I M"],
    w_JNMI: Float[Tensor, "J N M I"],
    how: How,
    scale: float = 1.0,
    bias: Float[Tensor, "J N"] | None = None,
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """c and z of x routed through W = scale w; z gets the bias at the end."""
    (batch, I, _), (J, N), (iterations, normalize, agreement, sharpness) = x.shape, w_JNMI.shape[:2], how
    lower = normalize == "lower"
    # NumPy asks the system for huge pages where a large array gains by them
    c, z = (torch.from_numpy(np.empty((batch, J, size), np.float32)) for size in (I, N))
    x_QVMP, w_JVNML = packed_x(x), packed_w(w_JNMI)
    options = (iterations, lower, agreement == "cosine", float(sharpness), float(scale))
    in_parallel(routing.route, len(x_QVMP) * (J if lower else 1), x_QVMP, w_JVNML, options, c.numpy(), z.numpy())
    # NumPy does this in the time that PyTorch takes to wake its threads
    if not np.isfinite(z.numpy()).all():
        for name, tensor in (("x", x), ("W", w_JNMI)):
            if not torch.isfinite(tensor).all():
                raise InputError(f"{name} contains NaN or infinite values")
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
    how: How,
) -> tuple[Float[Tensor, "B I M"], Float[Tensor, "J N M I"]]:
    """Gradients of x and w from those of c and z; with the weights c taken as given if there are any."""
    (B, I, M), (J, N), (iterations, normalize, agreement, sharpness) = x.shape, w_JNMI.shape[:2], how
    lower, cosine = normalize == "lower", agreement == "cosine" and c is None
    x_QVMP, w_JVNML, K = packed_x(x), packed_w(w_JNMI), 2 * (iterations - 1) if c is None else 1
    (Q, V), padded = x_QVMP.shape[:2], w_JVNML.shape[2]
    gz_QJNG = pad(gz, (0, padded - N, 0, 0, 0, -B % GROUP)).unflatten(0, (Q, GROUP)).permute(0, 2, 3, 1)
    vector_QJKNG = np.zeros((Q, J, K + 1, padded, GROUP), np.float32)
    if c is None:
        coefficient_QVJKP = np.zeros((Q, V, J, K + cosine, GROUP * LANES), np.float32)
        options = (iterations, lower, cosine, float(sharpness), 1.0)
        gc_QVJP = np.empty((0, V, J, GROUP * LANES), np.float32) if gc is None else packed_x(gc.transpose(1, 2))
        arguments = (x_QVMP, w_JVNML, I, options, gc_QVJP, array(gz_QJNG), coefficient_QVJKP, vector_QJKNG)
        in_parallel(backward.gradients_of_u, Q * (J if lower else 1), *arguments)
    else:
        coefficient_QVJKP = packed_x(c.transpose(1, 2))[:, :, :, None]
        vector_QJKNG[:, :, 0] = gz_QJNG.numpy()
    gx_QVMP, gw_JVNML = np.empty_like(x_QVMP), np.empty_like(w_JVNML)
    in_parallel(backward.spread, V, x_QVMP, w_JVNML, cosine, coefficient_QVJKP, vector_QJKNG, gx_QVMP, gw_JVNML)
    del x_QVMP, w_JVNML, coefficient_QVJKP  # before there are more arrays of their size
    gx = torch.from_numpy(gx_QVMP).unflatten(-1, (GROUP, LANES)).permute(0, 3, 1, 4, 2).reshape(Q * GROUP, -1, M)
    gw = torch.empty_like(w_JNMI)  # in the order of w, which is what the optimiser wants
    for v in range(V):
        gw[..., v * LANES : (v + 1) * LANES] = torch.from_numpy(gw_JVNML[:, v, :N, :, : I - v * LANES])
    return gx[:B, :I].contiguous(), gw


def packed_x(x: Float[Tensor, "B I M"]) -> np.ndarray:
    """x in the layout of the kernels (Q, V, M, P), padded with zeros."""
    B, I, _ = x.shape
    x_QGVLM = pad(x, (0, 0, 0, -I % LANES, 0, -B % GROUP)).unflatten(1, (-1, LANES)).unflatten(0, (-1, GROUP))
    return array(x_QGVLM.permute(0, 2, 4, 1, 3).flatten(-2))


def packed_w(w_JNMI: Float[Tensor, "J N M I"]) -> np.ndarray:
    """w in the layout of the kernels (J, V, N, M, L), padded with zeros."""
    N, _, I = w_JNMI.shape[1:]
    return array(pad(w_JNMI, (0, -I % LANES, 0, 0, 0, -N % 2)).unflatten(3, (-1, LANES)).permute(0, 3, 1, 2, 4))


def pad(tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """`F.pad`, which copies even where there is nothing to add."""
    return F.pad(tensor, sizes) if any(sizes) else tensor


def array(tensor: Tensor) -> np.ndarray:
    """The same memory for numba, which wants it contiguous."""
    return tensor.detach().contiguous().numpy()
