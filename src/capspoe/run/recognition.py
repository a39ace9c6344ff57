"""RUN/recognition.safetensors: the recognition network, for runs that have one."""

import hashlib
from contextlib import suppress
from pathlib import Path

import safetensors
import torch
from torch import Tensor

from capspoe.atomic import write_atomic
from capspoe.errors import damaged
from capspoe.model.network import Network
from capspoe.model.recognition import Recognition
from capspoe.run.checkpoint import tensor_bytes

FILE = "recognition.safetensors"


def write(net: Recognition, folder: Path) -> Path:
    """Store a recognition network as float16, with its checksum."""
    weights = {name: t.half() if t.is_floating_point() else t for name, t in net.state_dict().items()}
    write_atomic(folder / FILE, tensor_bytes(weights, {"sha256": checksum(weights)}))
    return folder / FILE


def checksum(weights: dict[str, Tensor]) -> str:
    return hashlib.sha256(tensor_bytes(weights)).hexdigest()


def read(folder: Path, network: Network) -> Recognition | None:
    """The recognition network of a run folder, if it has one."""
    if not (folder / FILE).exists():
        return None
    net = Recognition(network.image, network.top.upper[0]).requires_grad_(False).eval()
    errors = (OSError, RuntimeError, safetensors.SafetensorError)
    with suppress(*errors), safetensors.safe_open(folder / FILE, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        net.load_state_dict(weights)
        numbers = (net(torch.ones(1, *network.image).movedim(-1, 1)), *net.state_dict().values())
        if file.metadata() == {"sha256": checksum(weights)} and all(bool(t.isfinite().all()) for t in numbers):
            return net.to(network.device)
    raise damaged(f"{folder / FILE} cannot be read; remove it, or train it again")
