"""Optimizers, and their state as named tensors for checkpoints."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from capspoe.errors import damaged


def make_optimizer(
    name: str,
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    learning_rate: float,
    weight_decay: float,
    momentum: float,
) -> torch.optim.Optimizer:
    """Adam, or SGD with momentum; weight decay on the weights only."""
    groups: list[dict[str, Any]] = [{"params": list(weights), "weight_decay": weight_decay}]
    if biases:
        groups.append({"params": list(biases)})
    if name == "adam":
        return torch.optim.Adam(groups, learning_rate)
    return torch.optim.SGD(groups, learning_rate, momentum)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors."""
    tensors = {}
    for number, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            if value is not None:
                tensors[f"{number}.{name}"] = torch.as_tensor(value)
    return tensors


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`; refuses tensors that do not fit."""
    shapes: dict[str, torch.Size] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            shapes[str(len(shapes))] = parameter.shape
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        fits = number in shapes and value.shape in (shapes[number], ())
        if not fits or not bool(torch.isfinite(value).all()):
            raise damaged(f"the optimizer state {name[:40]!r} does not fit the settings")
        state.setdefault(int(number), {})[key] = value
    if state:
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
