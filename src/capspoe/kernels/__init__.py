"""The sums of routing and contrastive divergence, fused for the CPU: the same results as plain PyTorch, faster.

`select` chooses the kernels or plain PyTorch for the tensors at hand. docs/performance.md explains them.
"""

from capspoe.kernels.dispatch import Backend, compiled_on_gpu, is_tracing, select, use

__all__ = ["Backend", "compiled_on_gpu", "is_tracing", "select", "use"]
