"""Routing and its gradient as PyTorch operators, which torch.compile keeps whole. The first call imports numba."""

from typing import Any

import torch
from torch import Tensor

from capspoe.kernels.dispatch import cpu_kernels

_OPTIONS = "int iterations, str normalize, str agreement, float sharpness"
_ROUTE = f"(Tensor x, Tensor w_JNMI, {_OPTIONS}, bool detach_routing) -> (Tensor, Tensor)"
_BACKWARD = f"(Tensor? gc, Tensor gz, Tensor x, Tensor w_JNMI, Tensor? c, {_OPTIONS}) -> (Tensor, Tensor)"


@torch.library.custom_op("capspoe::route", mutates_args=(), schema=_ROUTE)
def route(x: Tensor, w_JNMI: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    """c and z of `capspoe.route`; `core.routing` registers the gradient."""
    return cpu_kernels().route_relative(x, w_JNMI, options[:4])


@torch.library.custom_op("capspoe::route_backward", mutates_args=(), schema=_BACKWARD)
def route_backward(gc: Any, gz: Any, x: Any, w_JNMI: Any, c: Any, *how: Any) -> tuple[Tensor, Tensor]:
    """Gradients of x and w from those of c and z; where c is given it is a constant."""
    return cpu_kernels().route_backward(gc, gz, x, w_JNMI, c, how)


@route.register_fake
def _(x: Tensor, w_JNMI: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    (B, I), (J, N) = x.shape[:2], w_JNMI.shape[:2]
    return x.new_empty(B, J, I), x.new_empty(B, J, N)


@route_backward.register_fake
def _(gc: Tensor | None, gz: Tensor, x: Tensor, w_JNMI: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(w_JNMI)
