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
    x_QVMP, w_JVNML = packed_inputs(x, w_JNMI)
    options = (iterations, lower, agreement == "cosine", float(sharpness), float(scale))
    in_parallel(routing.route, len(x_QVMP) * (J if lower else 1), x_QVMP, w_JVNML, options, c.numpy(), z.numpy())
    # NumPy does this in the time that PyTorch takes to wake its threads
    if not np.isfinite(z.numpy()).all():
        for name, tensor in (("x", x), ("W", w_JNMI)):
            if not torch.isfinite(tensor).all():
                raise InputError(f"{name} contains NaN or infinite values")
        raise InputError("x and W are too large: their product leaves the range of float32")
    if bias is not None:
        z.numpy()[...] += bias.detach().numpy()
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
    (x_QVMP, w_JVNML), K = packed_inputs(x, w_JNMI), 2 * (iterations - 1) if c is None else 1
    (Q, V, _, P), even = x_QVMP.shape, w_JVNML.shape[2]
    coefficient_QKJVP = torch.zeros(Q, K + cosine, J, V, P).numpy()
    vector_QJKNG = torch.zeros(Q, J, K + 1, even, GROUP).numpy()
    gz_QGJN = F.pad(gz, (0, even - N, 0, 0, 0, -B % GROUP)).unflatten(0, (Q, GROUP))
    vector_QJKNG[:, :, (K - 1) // 2] = gz_QGJN.permute(0, 2, 3, 1).numpy()
    if (weights := gc if c is None else c) is not None:
        coefficient_QKJVP[:, K - 1] = packed(weights, rows_first=True)
    if c is None:
        options = (iterations, lower, cosine, float(sharpness), 1.0)
        arguments = (x_QVMP, w_JVNML, I, options, coefficient_QKJVP, vector_QJKNG)
        in_parallel(backward.gradients_of_u, Q * (J if lower else 1), *arguments)
    gx, gw = torch.empty(x.shape), torch.empty_like(w_JNMI)  # gw in the order of w, which is what the optimiser wants
    sums = (coefficient_QKJVP, vector_QJKNG, gx.numpy(), gw.numpy())
    in_parallel(backward.spread, V, x_QVMP, w_JVNML, cosine, *sums)
    return gx, gw


def packed(rows_BKI: Tensor, group: int = GROUP, rows_first: bool = False) -> np.ndarray:
    """Rows in the layout of the kernels, (B / group, V, K, group LANES) or with K first, padded with zeros."""
    B, K, I = rows_BKI.shape
    Q, V = -(-B // group), -(-I // LANES)
    shape, axes = ((Q, K, V), (0, 3, 2, 1, 4)) if rows_first else ((Q, V, K), (0, 3, 1, 2, 4))
    out = (torch.zeros if B % group or I % LANES else torch.empty)(*shape, group, LANES)
    in_parallel(routing.pack, Q, rows_BKI.detach().numpy(), out.permute(axes).numpy())
    return out.flatten(-2).numpy()


def packed_inputs(x: Float[Tensor, "B I M"], w_JNMI: Float[Tensor, "J N M I"]) -> tuple[np.ndarray, np.ndarray]:
    """x (Q, V, M, P) and w (J, V, N, M, L), with an even number of neurons."""
    J, N, M, _ = w_JNMI.shape
    if N % 2:
        w_JNMI, N = F.pad(w_JNMI, (0, 0, 0, 0, 0, 1)), N + 1
    return packed(x.transpose(1, 2)), packed(w_JNMI.flatten(1, 2), 1).reshape(J, -1, N, M, LANES)
