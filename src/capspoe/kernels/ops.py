"""Routing and its gradient as PyTorch operators, capspoe::route and capspoe::route_backward, which
torch.compile keeps
whole. Numba is imported by the first call. `core.routing` gives the first its gradient."""

import torch
from torch import Tensor


@torch.library.custom_op("capspoe::route", mutates_args=())
def route(
    x: Tensor, w_JNMI: Tensor, iterations: int, normalize: str, agreement: str, sharpness: float, detach: bool
) -> tuple[Tensor, Tensor]:
    """c (B, J, I) and z (B, J, N) of x (B, I, M); `detach` is for the gradient."""
    from capspoe.kernels import cpu

    x_BMI = cpu.centred(x, x.new_zeros(x.shape[1:]))
    c, z, _ = cpu.route_relative(x_BMI, w_JNMI, iterations, normalize, agreement, sharpness, 1.0)
    return c.contiguous(), z


@route.register_fake
def _(x, w_JNMI, *options):  # type: ignore[no-untyped-def]
    (J, N), (B, I) = w_JNMI.shape[:2], x.shape[:2]
    return x.new_empty(B, J, I), x.new_empty(B, J, N)


@torch.library.custom_op("capspoe::route_backward", mutates_args=())
def route_backward(
    gc: Tensor,
    gz: Tensor,
    x: Tensor,
    w_JNMI: Tensor,
    c: Tensor | None,
    iterations: int,
    normalize: str,
    agreement: str,
    sharpness: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of x and w from those of c and z; the weights c are constants if given."""
    from capspoe.kernels import cpu

    return cpu.route_backward(gc, gz, x, w_JNMI, c, iterations, normalize, agreement, sharpness)


@route_backward.register_fake
def _(gc, gz, x, w_JNMI, *rest):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape), torch.empty_like(w_JNMI)
