"""Routing and its gradient as PyTorch operators, which torch.compile keeps whole. The first call imports numba.

Defined by `torch.library.define` and `impl`: the shorter `custom_op` imports the compiler at its first call, which
takes two seconds.
"""

from typing import Any

import torch
from torch import Tensor

from capspoe.kernels.dispatch import RoutingOptions, cpu_kernels

_OPTIONS = "int iterations, str normalize, str agreement, float sharpness"
_ROUTE = f"(Tensor x, Tensor w_JNMI, {_OPTIONS}, bool detach_routing) -> (Tensor, Tensor)"
_BACKWARD = f"(Tensor? gc, Tensor gz, Tensor x, Tensor w_JNMI, Tensor? c, {_OPTIONS}) -> (Tensor, Tensor)"

torch.library.define("capspoe::route", _ROUTE)
torch.library.define("capspoe::route_backward", _BACKWARD)

route = torch.ops.capspoe.route.default
route_backward = torch.ops.capspoe.route_backward.default


@torch.library.impl("capspoe::route", "cpu")
def _route(x: Tensor, w_JNMI: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    """c and z of `capspoe.route`; `model.routing` registers the gradient."""
    *how, _detach_routing = options
    return cpu_kernels().route_relative(x, w_JNMI, RoutingOptions(*how))


@torch.library.impl("capspoe::route_backward", "cpu")
def _route_backward(
    gc: Tensor | None, gz: Tensor, x: Tensor, w_JNMI: Tensor, c: Tensor | None, *how: Any
) -> tuple[Tensor, Tensor]:
    """Gradients of x and w from those of c and z; where c is given it is a constant."""
    return cpu_kernels().route_backward(gc, gz, x, w_JNMI, c, RoutingOptions(*how))


@torch.library.register_fake("capspoe::route")
def _shapes(x: Tensor, w_JNMI: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    B, I, _ = x.shape
    J, N, _, _ = w_JNMI.shape
    return x.new_empty(B, J, I), x.new_empty(B, J, N)


@torch.library.register_fake("capspoe::route_backward")
def _shapes_backward(gc: Tensor | None, gz: Tensor, x: Tensor, w_JNMI: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), torch.empty_like(w_JNMI)
