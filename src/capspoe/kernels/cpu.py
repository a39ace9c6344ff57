"""The CPU kernels as functions of PyTorch tensors, all float32 on the CPU."""

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from capspoe.errors import InputError
from capspoe.kernels import backward, routing
from capspoe.kernels.dispatch import RoutingOptions
from capspoe.kernels.panel import GROUP, LANES
from capspoe.kernels.threads import in_parallel


def route_relative(
    x: Float[Tensor, "B I M"],
    w_JNMI: Float[Tensor, "J N M I"],
    options: RoutingOptions,
    scale: float = 1.0,
    bias: Float[Tensor, "J N"] | None = None,
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """c and z of x routed through W = scale w; z gets the bias at the end."""
    B, I, _ = x.shape
    J, N, _, _ = w_JNMI.shape
    # NumPy asks the system for huge pages where a large array gains by them.
    c_BJI = np.empty((B, J, I), np.float32)
    z_BJN = np.empty((B, J, N), np.float32)
    x_QVMP, w_JVNML = packed_inputs(x, w_JNMI)
    settings = kernel_settings(options, scale)
    in_parallel(routing.route, tasks(x_QVMP, J, options), x_QVMP, w_JVNML, settings, c_BJI, z_BJN)
    # NumPy checks z in the time that PyTorch takes to wake its threads.
    if not np.isfinite(z_BJN).all():
        raise not_finite(x, w_JNMI)
    if bias is not None:
        z_BJN += bias.detach().numpy()
    return torch.from_numpy(c_BJI), torch.from_numpy(z_BJN)


def route_backward(
    gc: Float[Tensor, "B J I"] | None,
    gz: Float[Tensor, "B J N"],
    x: Float[Tensor, "B I M"],
    w_JNMI: Float[Tensor, "J N M I"],
    c: Float[Tensor, "B J I"] | None,
    options: RoutingOptions,
) -> tuple[Float[Tensor, "B I M"], Float[Tensor, "J N M I"]]:
    """Gradients of x and w from those of c and z; with the weights c taken as given if there are any."""
    B, I, _ = x.shape
    J, N, _, _ = w_JNMI.shape
    x_QVMP, w_JVNML = packed_inputs(x, w_JNMI)
    Q, V, _, P = x_QVMP.shape
    even_N = w_JVNML.shape[2]

    # The gradient of a prediction is a sum of K vectors (see `backward.py`), and for the cosine of the prediction.
    through_routing = c is None
    own = through_routing and options.agreement == "cosine"
    K = 2 * (options.iterations - 1) if through_routing else 1
    coefficient_QKJVP = torch.zeros(Q, K + own, J, V, P).numpy()
    vector_QJKNG = torch.zeros(Q, J, K + 1, even_N, GROUP).numpy()

    # What is known before: the gradient of z, and its weights c or else the gradient of c.
    gz_QGJN = F.pad(gz, (0, even_N - N, 0, 0, 0, -B % GROUP)).unflatten(0, (Q, GROUP))
    vector_QJKNG[:, :, (K - 1) // 2] = gz_QGJN.permute(0, 2, 3, 1).numpy()
    weights = gc if through_routing else c
    if weights is not None:
        coefficient_QKJVP[:, K - 1] = packed(weights, rows_first=True)

    if through_routing:
        sums = (x_QVMP, w_JVNML, I, kernel_settings(options), coefficient_QKJVP, vector_QJKNG)
        in_parallel(backward.gradients_of_u, tasks(x_QVMP, J, options), *sums)
    gx = torch.empty(x.shape)
    gw = torch.empty_like(w_JNMI)  # in the order of w, which is what the optimiser wants
    results = (gx.numpy(), gw.numpy())
    in_parallel(backward.spread, V, x_QVMP, w_JVNML, own, coefficient_QKJVP, vector_QJKNG, *results)
    return gx, gw


def kernel_settings(options: RoutingOptions, scale: float = 1.0) -> tuple[int, bool, bool, float, float]:
    """The options as the kernels take them: iterations, lower, cosine, sharpness, scale."""
    lower = options.normalize == "lower"
    cosine = options.agreement == "cosine"
    return options.iterations, lower, cosine, float(options.sharpness), float(scale)


def tasks(x_QVMP: np.ndarray, J: int, options: RoutingOptions) -> int:
    """Number of tasks (see `routing.route`): groups of images, times the upper capsules that are routed alone."""
    return len(x_QVMP) * J if options.normalize == "lower" else len(x_QVMP)


def not_finite(x: Tensor, w_JNMI: Tensor) -> InputError:
    """The error that says why z is not finite."""
    for name, tensor in (("x", x), ("W", w_JNMI)):
        if not torch.isfinite(tensor).all():
            return InputError(f"{name} contains NaN or infinite values")
    return InputError("x and W are too large: their product leaves the range of float32")


def packed(rows_BKI: Tensor, group: int = GROUP, rows_first: bool = False) -> np.ndarray:
    """Rows in the layout of the kernels, (B / group, V, K, group LANES) or with K first, padded with zeros."""
    B, K, I = rows_BKI.shape
    Q = -(-B // group)
    V = -(-I // LANES)
    room = torch.zeros if B % group or I % LANES else torch.empty
    if rows_first:
        out = room(Q, K, V, group, LANES)
        out_QGVKL = out.permute(0, 3, 2, 1, 4)
    else:
        out = room(Q, V, K, group, LANES)
        out_QGVKL = out.permute(0, 3, 1, 2, 4)
    in_parallel(routing.pack, Q, rows_BKI.detach().numpy(), out_QGVKL.numpy())
    return out.flatten(-2).numpy()


def packed_inputs(x: Float[Tensor, "B I M"], w_JNMI: Float[Tensor, "J N M I"]) -> tuple[np.ndarray, np.ndarray]:
    """x (Q, V, M, P) and w (J, V, N, M, L), with an even number of neurons."""
    if w_JNMI.shape[1] % 2:
        w_JNMI = F.pad(w_JNMI, (0, 0, 0, 0, 0, 1))
    J, N, M, _ = w_JNMI.shape
    w_QVKL = packed(w_JNMI.flatten(1, 2), group=1)
    return packed(x.transpose(1, 2)), w_QVKL.reshape(J, -1, N, M, LANES)
