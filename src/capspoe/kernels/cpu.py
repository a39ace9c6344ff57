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
    x_QVMP, w_JVNML = packed(x, w_JNMI)
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
    (B, I, _), (J, N), (iterations, normalize, agreement, sharpness) = x.shape, w_JNMI.shape[:2], how
    lower, cosine = normalize == "lower", agreement == "cosine" and c is None
    (x_QVMP, w_JVNML), K = packed(x, w_JNMI), 2 * (iterations - 1) if c is None else 1
    (Q, V, _, P), padded = x_QVMP.shape, w_JVNML.shape[2]
    gz_QJNG = pad(gz, (0, padded - N, 0, 0, 0, -B % GROUP)).unflatten(0, (Q, GROUP)).permute(0, 2, 3, 1)
    vector_QJKNG = np.zeros((Q, J, K + 1, padded, GROUP), np.float32)
    if c is None:
        coefficient_QKJVP = torch.empty(Q, K + cosine, J, V, P).numpy()
        options = (iterations, lower, cosine, float(sharpness), 1.0)
        gc_QJVP = np.empty((0, J, V, P), np.float32) if gc is None else packed_c(gc)
        arguments = (x_QVMP, w_JVNML, I, options, gc_QJVP, array(gz_QJNG), coefficient_QKJVP, vector_QJKNG)
        in_parallel(backward.gradients_of_u, Q * (J if lower else 1), *arguments)
    else:
        coefficient_QKJVP = packed_c(c)[:, None]
        vector_QJKNG[:, :, 0] = gz_QJNG.numpy()
    gx, gw = torch.empty(x.shape), torch.empty_like(w_JNMI)  # gw in the order of w, which is what the optimiser wants
    results = gx.numpy(), gw.numpy()
    in_parallel(backward.spread, V, x_QVMP, w_JVNML, cosine, coefficient_QKJVP, vector_QJKNG, *results)
    return gx, gw


def packed_c(c: Float[Tensor, "B J I"]) -> np.ndarray:
    """c in the layout of the kernels (Q, J, V, P), padded with zeros."""
    c_QGJVL = pad(c, (0, -c.shape[2] % LANES, 0, 0, 0, -len(c) % GROUP)).unflatten(2, (-1, LANES)).unflatten(0, (-1, GROUP))
    return array(c_QGJVL.permute(0, 2, 3, 1, 4).flatten(-2))


def packed(x: Float[Tensor, "B I M"], w_JNMI: Float[Tensor, "J N M I"]) -> tuple[np.ndarray, np.ndarray]:
    """x (Q, V, M, P) and w (J, V, N, M, L) in the layout of the kernels, padded with zeros."""
    (B, I, M), (J, N) = x.shape, w_JNMI.shape[:2]
    Q, V = -(-B // GROUP), -(-I // LANES)
    x_QVMP, w_JVNML = torch.empty(Q, V, M, GROUP * LANES).numpy(), torch.empty(J, V, N + N % 2, M, LANES).numpy()
    in_parallel(routing.pack_x, Q, array(x), x_QVMP)
    in_parallel(routing.pack_w, J, w_JNMI.detach().numpy(), w_JVNML)
    return x_QVMP, w_JVNML


def pad(tensor: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """`F.pad`, which copies even where there is nothing to add."""
    return F.pad(tensor, sizes) if any(sizes) else tensor


def array(tensor: Tensor) -> np.ndarray:
    """The same memory for numba, which wants it contiguous."""
    return tensor.detach().contiguous().numpy()
