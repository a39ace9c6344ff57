"""What moves the weights in each stage, and its memory as tensors that a checkpoint can keep."""

import math
from typing import Any

import torch
from torch import Tensor

from capspoe import checkpoint
from capspoe.capsules import CapsuleLayer
from capspoe.contrastive import Gradients
from capspoe.model import CapsulePoE


def autoencoder_optimizer(model: CapsulePoE) -> torch.optim.Optimizer:
    c, t = model.config.autoencoder, model.config.training
    parameters = list(model.autoencoder.parameters())
    if c.optimizer == "adam":
        return torch.optim.Adam(parameters, c.autoencoder_lr, weight_decay=c.autoencoder_l2)
    return torch.optim.SGD(parameters, c.autoencoder_lr, t.momentum, weight_decay=c.autoencoder_l2)


def capsule_optimizer(model: CapsulePoE, layer: CapsuleLayer) -> torch.optim.SGD:
    """SGD with momentum; l2 on the weights only."""
    t = model.config.training
    groups: list[dict[str, Any]] = [{"params": [layer.w_JNMI], "weight_decay": t.l2}]
    if layer.bias:
        groups.append({"params": [layer.a, layer.b]})
    return torch.optim.SGD(groups, lr=capsule_lr(model, layer), momentum=t.momentum)


def capsule_lr(model: CapsulePoE, layer: CapsuleLayer) -> float:
    """`lr` is that of the top layer; below a gaussian one the layers are binary, and take 10 times as much."""
    below = layer is not model.top and model.top.neurons == "gaussian"
    return model.config.training.lr * (10 if below else 1)


def set_gradients(layer: CapsuleLayer, ascent: Gradients) -> None:
    """Give the optimiser, which descends, what contrastive divergence found.

    With the gate each capsule sees 1 / J of the images: sqrt(J) makes up for some of that.
    """
    gain = math.sqrt(layer.upper[0]) if layer.gated else 1.0
    for parameter, gradient in zip((layer.w_JNMI, layer.a, layer.b), ascent, strict=False):
        parameter.grad = -gain * gradient if parameter.requires_grad else None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's memory as named tensors."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, memory in optimizer.state_dict()["state"].items()
        for name, value in memory.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    if not tensors:
        return
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        owner = parameters[int(number)] if number.isdecimal() and int(number) < len(parameters) else None
        if owner is None or (value.shape not in (owner.shape, ()) or not bool(torch.isfinite(value).all())):
            raise checkpoint.damaged(f"the optimiser's memory {name[:40]!r} does not fit the settings")
        state.setdefault(int(number), {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
