"""Which implementation runs: the plain reference or the CPU kernels. Imports no compiler."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Parameter

from capspoe.errors import InputError
from capspoe.validate import check_choice, traced

Backend = Literal["auto", "reference", "kernel"]
CHOICES = ("auto", "reference", "kernel")
_backend: ContextVar[str | None] = ContextVar("capspoe_backend", default=None)


@contextmanager
def use(backend: Backend) -> Iterator[None]:
    """Within `with use("reference"):` everything runs the plain PyTorch code, with "kernel" the kernels.

    "auto", the default, takes the kernels for float32 on the CPU when no gradient has to flow through. The
    environment variable CAPSPOE_BACKEND sets it for a whole process.
    """
    check_choice("backend", backend, CHOICES)
    token = _backend.set(backend)
    try:
        yield
    finally:
        _backend.reset(token)


def chosen(*tensors: Tensor | None) -> bool:
    """Whether the kernels are to compute with these tensors (None stands for one that is not given).

    They see numbers, not derivatives: never where a gradient has to flow, forwards or backwards, nor under
    torch.compile, torch.export or the transforms of torch.func.
    """
    if traced():
        return False
    backend = _backend.get() or os.environ.get("CAPSPOE_BACKEND", "auto")
    check_choice("CAPSPOE_BACKEND", backend, CHOICES)
    if backend == "reference":
        return False
    given = [t for t in tensors if t is not None]
    able = all(
        type(t) in (Tensor, Parameter) and t.device.type == "cpu" and t.dtype == torch.float32 for t in given
    ) and not (torch.is_grad_enabled() and any(t.requires_grad for t in given))
    if backend == "kernel" and not able:
        raise InputError("the kernels need float32 tensors on the CPU, and no gradient through them")
    return able
