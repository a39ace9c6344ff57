"""Routing, fused for the CPU: the same results as plain PyTorch, faster. docs/performance.md explains how."""

from capspoe.kernels.ahead import compile_ahead
from capspoe.kernels.dispatch import Backend, RoutingOptions, compiled_on_gpu, is_tracing, select, use

__all__ = ["Backend", "RoutingOptions", "compile_ahead", "compiled_on_gpu", "is_tracing", "select", "use"]
