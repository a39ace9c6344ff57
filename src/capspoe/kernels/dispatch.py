"""Which implementation computes: plain PyTorch, the CPU kernels, or on a GPU torch.compile. Imports no compiler."""

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from capspoe.errors import InputError

Backend = Literal["auto", "reference", "kernel"]
AGREEMENTS = ("cosine", "dot")  # those that the kernels implement


class RoutingOptions(NamedTuple):
    """The arguments of `capspoe.route` that the kernels take; the agreement is one of AGREEMENTS."""

    iterations: int
    normalize: str
    agreement: str
    sharpness: float


class _Forced(threading.local):
    """The backend that `use` forces in this thread. Not a ContextVar, which torch.compile cannot trace."""

    backend: str | None = None


_forced = _Forced()


@contextmanager
def use(backend: Backend) -> Iterator[None]:
    """Force a backend inside a `with` block.

    "reference" runs plain PyTorch, "kernel" the kernels. "auto", the default, takes the kernels for float32 on the
    CPU and torch.compile on a GPU. The environment variable CAPSPOE_BACKEND sets it for a whole process.
    """
    before = _forced.backend
    _forced.backend = _checked(backend)
    try:
        yield
    finally:
        _forced.backend = before


def current() -> str:
    """The backend that `use` or CAPSPOE_BACKEND asks for."""
    return _forced.backend or _checked(os.environ.get("CAPSPOE_BACKEND", "auto"))


def select(
    *tensors: Tensor | None, agreement: str | None = "cosine", differentiable: bool = False
) -> ModuleType | None:
    """The kernels for these tensors, or None for plain PyTorch.

    Parameters
    ----------
    tensors : everything the kernels would read; None entries are skipped
    agreement : name of the agreement; None for a function of the user's own
    differentiable : whether the caller goes through the operator capspoe::route, which has a gradient and which
        torch.compile keeps whole. Otherwise the kernels run only where no gradient is needed.
    """
    backend = current()
    if backend == "reference":
        return None
    given = [tensor for tensor in tensors if tensor is not None]
    if agreement in AGREEMENTS and _supported(given, differentiable):
        return cpu_kernels()
    if backend == "kernel" and not is_tracing(*given):
        names = " or ".join(map(repr, AGREEMENTS))
        raise InputError(
            f"the kernels need float32 tensors on the CPU and agreement={names}, and all but routing no gradient"
        )
    return None


def _supported(tensors: list[Tensor], differentiable: bool) -> bool:
    """Whether the kernels can take these tensors."""
    for tensor in tensors:
        # A subclass of Tensor may want to see every operation.
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32 or type(tensor) not in (Tensor, Parameter):
            return False
    if torch.compiler.is_compiling():
        # An exported program has to run where the operator does not exist.
        return differentiable and not torch.compiler.is_exporting()
    if is_tracing(*tensors):
        return False
    needs_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    return differentiable or not needs_gradient


def compiled_on_gpu(function: Callable[..., Any], *tensors: Tensor) -> Callable[..., Any]:
    """The function through torch.compile if the tensors are on a GPU, unless plain PyTorch was asked for."""
    on_gpu = all(tensor.is_cuda for tensor in tensors)
    if on_gpu and current() == "auto" and not is_tracing(*tensors):
        return _compile(function)
    return function


_compile = functools.cache(functools.partial(torch.compile, dynamic=True))


def is_tracing(*tensors: Tensor) -> bool:
    """Whether PyTorch wants the operations on these tensors one by one, or they have no values to look at.

    That is so under torch.compile, torch.export, torch.func and forward-mode derivatives, and with fake tensors.
    """
    if torch.compiler.is_compiling():
        return True
    # A new tensor shows a transform or a mode that applies to all operations, whatever they are given.
    for tensor in (torch.empty(1), *tensors):
        has_tangent = forward_ad.unpack_dual(tensor).tangent is not None
        if has_tangent or not _has_values(tensor):
            return True
    return False


def _has_values(tensor: Tensor) -> bool:
    """Whether the tensor has values in memory of its own."""
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        return False  # a type that intercepts operations, such as a fake tensor
    try:
        return tensor.data_ptr() != 0
    except RuntimeError:  # a tensor inside torch.func stands for another one
        return False


def cpu_kernels() -> ModuleType:
    """The module `cpu`. Only callers that compute with it wait for numba."""
    from capspoe.kernels import cpu

    return cpu


def _checked(backend: str) -> str:
    choices = get_args(Backend)
    if backend not in choices:
        raise InputError(f"the backend must be one of {', '.join(choices)}, not {backend!r}")
    return backend
