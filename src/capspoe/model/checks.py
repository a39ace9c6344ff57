"""Checks of arguments: each raises one clear InputError that names the argument."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from capspoe.errors import InputError
from capspoe.kernels import is_tracing


def check_tensor(
    name: str, value: Any, sizes: dict[str, int | None], like: Tensor | None = None, finite: bool = True
) -> None:
    """Require a finite float tensor with the given axes.

    `sizes` lists the axes in order; None accepts any length of one or more. `like` fixes the dtype. Values are not
    inspected while PyTorch traces, because that would break the graph, nor with finite=False.
    """
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
    if value.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{name} must be float32 or float64, not {dtype_name(value)}")
    if like is not None and value.dtype != like.dtype:
        raise InputError(f"{name} is {dtype_name(value)} but must be {dtype_name(like)} like the rest")
    if value.ndim != len(sizes) or any(
        size is not None and size != have for size, have in zip(sizes.values(), value.shape, strict=True)
    ):
        wanted = ", ".join(axis if size is None else f"{axis}={size}" for axis, size in sizes.items())
        raise InputError(f"{name} must have shape ({wanted}), not {tuple(value.shape)}")
    if value.numel() == 0:
        raise InputError(f"{name} is empty: shape {tuple(value.shape)}")
    if finite:
        check_finite(name, value)


def check_finite(name: str, value: Tensor) -> None:
    if is_tracing(value):
        return
    ends = torch.stack(torch.aminmax(value.detach()))
    if not bool(torch.isfinite(ends).all()):
        raise InputError(f"{name} contains NaN or infinite values")


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def check_count(name: str, value: Any, minimum: int = 1) -> None:
    if not _is_integer(value) or value < minimum:
        raise InputError(f"{name} must be an integer of {minimum} or more, not {value!r}")


def check_capsule(name: str, value: Any, capsules: int) -> None:
    check_count(name, value, minimum=0)
    if value >= capsules:
        raise InputError(f"{name} must be below {capsules}, the number of capsules, not {value}")


def check_seed(value: Any) -> None:
    if not _is_integer(value) or abs(int(value)) > 2**62:
        raise InputError(f"seed must be an integer between -2^62 and 2^62, not {value!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)
