"""Arguments checked once at the door, so that everything behind it can trust them."""

from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from capspoe.errors import InputError


def check_tensor(
    name: str, value: Any, sizes: dict[str, int | None], like: Tensor | None = None, finite: bool = True
) -> None:
    """Raise one clear error naming `name` unless `value` is a finite float tensor of the given sizes.

    `sizes` lists the axes in order, by letter; None accepts any length of one or more. Under torch.compile
    and the like the values are not looked at, because that would break the graph; with finite=False the caller looks.
    """
    if not isinstance(value, Tensor):
        raise InputError(f"{name} must be a torch.Tensor, not {type(value).__name__}")
    if value.dtype not in (torch.float32, torch.float64):
        raise InputError(f"{name} must be float32 or float64, not {str(value.dtype).removeprefix('torch.')}")
    if like is not None and value.dtype != like.dtype:
        raise InputError(
            f"{name} is {str(value.dtype).removeprefix('torch.')} but must be "
            f"{str(like.dtype).removeprefix('torch.')} like the rest"
        )
    wanted = ", ".join(axis if size is None else f"{axis}={size}" for axis, size in sizes.items())
    if value.ndim != len(sizes) or any(
        size is not None and size != have for size, have in zip(sizes.values(), value.shape, strict=True)
    ):
        raise InputError(f"{name} must have shape ({wanted}), not {tuple(value.shape)}")
    if value.numel() == 0:
        raise InputError(f"{name} is empty: shape {tuple(value.shape)}")
    if finite and not traced() and not bool(torch.isfinite(torch.stack(torch.aminmax(value.detach()))).all()):
        raise InputError(f"{name} contains NaN or infinite values")


def traced() -> bool:
    """Whether PyTorch is looking at the operations rather than at the numbers: then no number may be asked for.

    So under torch.compile, torch.export, torch.func's vmap, grad and jvp, and forward-mode derivatives.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
    )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def check_count(name: str, value: Any, least: int = 1) -> None:
    if not _whole(value) or value < least:
        raise InputError(f"{name} must be a whole number of {least} or more, not {value!r}")


def check_seed(value: Any) -> None:
    if not _whole(value) or abs(int(value)) > 2**62:
        raise InputError(f"seed must be a whole number between -2^62 and 2^62, not {value!r}")


def _whole(value: Any) -> bool:
    """Whether it is an integer, Python's or NumPy's."""
    return isinstance(value, Integral) and not isinstance(value, bool)
