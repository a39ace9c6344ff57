"""The optimizers of both stages, and their state as tensors for checkpoints."""

import math
from typing import Any

import torch
from torch import Tensor

from capspoe.config import BINARY_RATE, Config
from capspoe.errors import damaged
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.train.cd import Gradients


def autoencoder_optimizer(network: Network) -> torch.optim.Optimizer:
    """Adam, or SGD with momentum; weight decay on the weights only."""
    c, parameters = network.config, list(network.codec.parameters())
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": c.autoencoder_weight_decay},
        {"params": [p for p in parameters if p.ndim == 1]},
    ]
    if c.autoencoder_optimizer == "adam":
        return torch.optim.Adam(groups, c.autoencoder_learning_rate)
    return torch.optim.SGD(groups, c.autoencoder_learning_rate, c.momentum)


def capsule_optimizer(layer: CapsuleLayer, config: Config) -> torch.optim.SGD:
    """SGD with momentum; weight decay on the weights only."""
    groups: list[dict[str, Any]] = [{"params": [layer.w_JNMI], "weight_decay": config.weight_decay}]
    if layer.bias:
        groups.append({"params": [layer.a, layer.b]})
    return torch.optim.SGD(groups, lr=capsule_learning_rate(layer, config), momentum=config.momentum)


def capsule_learning_rate(layer: CapsuleLayer, config: Config) -> float:
    """`learning_rate` is for the top layer's neurons; binary layers below gaussian ones take 10 times as much."""
    other = layer.neurons.name != config.neurons
    return config.learning_rate * (BINARY_RATE if other else 1)


def set_gradients(layer: CapsuleLayer, ascent: Gradients) -> None:
    """Hand the gradients of contrastive divergence to the optimizer, which descends.

    With the gate each capsule sees 1 / J of the images; sqrt(J) makes up for some of that.
    """
    gain = math.sqrt(layer.upper[0]) if layer.gate.exclusive else 1.0
    for parameter, gradient in zip((layer.w_JNMI, layer.a, layer.b), ascent, strict=False):
        parameter.grad = -gain * gradient if parameter.requires_grad else None


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors."""
    return {
        f"{number}.{name}": torch.as_tensor(value)
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if value is not None
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    shapes = {str(k): p.shape for k, p in enumerate(p for g in optimizer.param_groups for p in g["params"])}
    for name, value in tensors.items():
        number, _, key = name.partition(".")
        fits = number in shapes and value.shape in (shapes[number], ())
        if not fits or not bool(torch.isfinite(value).all()):
            raise damaged(f"the optimizer state {name[:40]!r} does not fit the settings")
        state.setdefault(int(number), {})[key] = value
    if state:
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
