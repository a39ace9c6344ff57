"""Routing, fused for the CPU: the same results as plain PyTorch, faster. docs/performance.md explains how."""

from capspoe.kernels.dispatch import Backend, compiled_on_gpu, is_tracing, select, use

__all__ = ["Backend", "compiled_on_gpu", "is_tracing", "select", "use"]
