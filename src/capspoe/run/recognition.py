"""RUN/recognition.safetensors: the recognition network, for runs that have one."""

from pathlib import Path

import safetensors.torch
import torch

from capspoe.core.network import Network
from capspoe.core.recognition import Recognition
from capspoe.run.atomic import write_atomic
from capspoe.run.checkpoint import damaged, tensor_bytes

FILE = "recognition.safetensors"


def write(net: Recognition, folder: Path) -> Path:
    """Store a recognition network, as float16."""
    weights = {name: t.half() if t.is_floating_point() else t for name, t in net.state_dict().items()}
    write_atomic(folder / FILE, tensor_bytes(weights))
    return folder / FILE


def read(folder: Path, network: Network) -> Recognition | None:
    """The recognition network of a run folder, if it has one."""
    if not (folder / FILE).exists():
        return None
    net = Recognition(network.image, network.top.upper[0])
    try:
        net.load_state_dict(safetensors.torch.load_file(folder / FILE))
        intact = all(bool(torch.isfinite(value).all()) for value in net.state_dict().values())
    except (OSError, RuntimeError, safetensors.SafetensorError):
        intact = False
    if not intact:
        raise damaged(f"{folder / FILE} cannot be read; remove it, or train it again")
    return net.requires_grad_(False).eval().to(network.device)
