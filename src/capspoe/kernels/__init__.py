"""The sums of routing and contrastive divergence, fused for the CPU: same results as the plain PyTorch code.

`capspoe.CapsuleLayer` and `capspoe.contrastive.step` call them by themselves; `use` forces the choice.
docs/performance.md explains how they work and what they gain. numba is imported at the first call.
"""

from capspoe.kernels.backend import Backend, chosen, use
from capspoe.kernels.sums import (
    Routed,
    WinnerGradients,
    add_correlation,
    centred,
    correlation,
    preactivation,
    reverse,
    route,
    route_relative,
    winner_gradients,
)

__all__ = [
    "Backend",
    "Routed",
    "WinnerGradients",
    "add_correlation",
    "centred",
    "chosen",
    "correlation",
    "preactivation",
    "reverse",
    "route",
    "route_relative",
    "use",
    "winner_gradients",
]
