"""Which implementation computes: plain PyTorch, the CPU kernels, or on a GPU torch.compile. Imports no compiler."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensor
from torch.nn import Parameter

from capspoe.errors import InputError

Backend = Literal["auto", "reference", "kernel"]
_backend: ContextVar[str | None] = ContextVar("capspoe_backend", default=None)


@contextmanager
def use(backend: Backend) -> Iterator[None]:
    """Force a backend inside a `with` block.

    "reference" runs plain PyTorch, "kernel" the kernels. "auto", the default, takes the kernels for float32 on the
    CPU and torch.compile on a GPU. The environment variable CAPSPOE_BACKEND sets it for a whole process.
    """
    token = _backend.set(_checked(backend))
    try:
        yield
    finally:
        _backend.reset(token)


def select(*tensors: Tensor | None, differentiable: bool = False) -> ModuleType | None:
    """The kernels for these tensors (None entries are skipped), or None for plain PyTorch.

    Where they are `differentiable` (capspoe::route has a gradient) they also serve autograd, torch.compile and fake
    tensors. Plain PyTorch remains for torch.export, torch.func, forward mode, float64 and other devices.
    """
    if (backend := _current()) == "reference":
        return None
    given = [t for t in tensors if t is not None]
    supported = all(t.device.type == "cpu" and t.dtype == torch.float32 for t in given)
    if differentiable:
        supported = supported and not _transforms() and all(type(t) in (Tensor, Parameter, FakeTensor) for t in given)
    elif is_tracing():
        return None
    elif torch.is_grad_enabled():
        supported = supported and not any(t.requires_grad for t in given)
    if supported:
        return cpu_kernels()
    if backend == "kernel" and not is_tracing():
        raise InputError("the kernels need float32 tensors on the CPU, and all but routing no gradient")
    return None


_compile = functools.cache(functools.partial(torch.compile, dynamic=True))


def compiled_on_gpu(function: Callable[..., Any], tensor: Tensor) -> Callable[..., Any]:
    """The function through torch.compile if the tensor is on a GPU, unless plain PyTorch was asked for."""
    return _compile(function) if tensor.is_cuda and not is_tracing() and _current() == "auto" else function


def is_tracing() -> bool:
    """Whether PyTorch traces (compile, export, torch.func, forward mode, fake tensors): no values can be seen."""
    return torch.compiler.is_compiling() or _transforms() or detect_fake_mode() is not None


def _transforms() -> bool:
    """Whether the operations of plain PyTorch are wanted one by one."""
    if torch.compiler.is_compiling():  # the rest would break the graph
        return torch.compiler.is_exporting()
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


def _constant(function: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.compiler.assume_constant_result does, without importing the compiler, which takes a second."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


@_constant
def _current() -> str:
    return _backend.get() or _checked(os.environ.get("CAPSPOE_BACKEND", "auto"))


@_constant
def cpu_kernels() -> ModuleType:
    """The module `cpu`, which imports numba."""
    from capspoe.kernels import cpu

    return cpu


def _checked(backend: str) -> str:
    if backend not in get_args(Backend):
        raise InputError(f"the backend must be one of {', '.join(get_args(Backend))}, not {backend!r}")
    return backend
