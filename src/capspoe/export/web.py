"""A page that runs the network in the browser, without a server: index.html, capsules.js and weights.js.

All three are plain scripts, so that the page works on any static host and from the disk. weights.js holds what
page/network.js reads: the shapes of the network, its weights as float16 in base64, and what the capsules are called.
"""

import json
from base64 import b64encode
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capspoe.atomic import write_atomic
from capspoe.errors import InputError
from capspoe.figures.summary import summary_of
from capspoe.figures.traversal import sliders
from capspoe.infer.polarity import Polarity
from capspoe.run.model import CapsulePoE

EXACT = 1024  # tensors with fewer values keep their precision


def write(model: CapsulePoE, run: Path, folder: Path) -> list[Path]:
    """Write the page of a network."""
    top = model.top
    if len(model.layers) > 1 or not top.gate.one_on or (top.agreement.name, top.normalize) != ("cosine", "lower"):
        raise InputError("the web page can show one gated layer of capsules with cosine routing, not this network")
    page = files("capspoe.export") / "page"
    pad = (files("capspoe.explorer") / "static" / "pad.js").read_text(encoding="utf-8").replace("export ", "")
    script = [(page / name).read_text(encoding="utf-8") for name in ("network.js", "page.js")]
    content = {
        "index.html": (page / "index.html").read_text(encoding="utf-8"),
        "capsules.js": "\n".join([script[0], pad, script[1]]),
        "weights.js": f"const MODEL = {json.dumps(description(model, run), separators=(',', ':'))};\n",
    }
    for name, text in content.items():
        write_atomic(folder / name, text.encode())
    return [folder / name for name in content]


@torch.no_grad()
def description(model: CapsulePoE, run: Path) -> dict[str, object]:
    """Everything that the page needs to know."""
    top, J, found = model.top, model.top.upper[0], summary_of(model, run)
    large: dict[str, Tensor] = {}
    small: dict[str, Tensor] = {}
    for name, tensor in tensors(model).items():
        (large if tensor.numel() >= EXACT else small)[name] = tensor.detach().cpu().flatten()
    weights = np.concatenate([value.numpy().astype("<f2") for value in large.values()])
    return {
        "name": Path(model.config.data).name,
        "image": model.image,
        "kernel": model.codec.kernel,
        "code": model.codec.code_shape,
        "lower": top.lower,
        "upper": top.upper,
        "iterations": top.iterations,
        "sharpness": top.sharpness,
        "neurons": top.neurons.name,
        "logitScale": model.config.logit_scale or float(model.logit_scale),
        "labels": found.labels,
        "error": found.error,
        "objectSize": found.object_size,
        "dark": Polarity.of_network(model).dark,
        "sliders": [sliders(model, j) for j in range(J)],
        **{name: value.tolist() for name, value in small.items()},
        "sizes": [(name, len(value)) for name, value in large.items()],
        "weights": b64encode(weights.tobytes()).decode(),
    }


def tensors(model: CapsulePoE) -> dict[str, Tensor]:
    """The parameters by their names in network.js. The visible bias has a row for each capsule, shared or not."""
    top, prior = model.top, model.prior
    found = {"w": top.w_JNMI.transpose(2, 3), "a": top.a.reshape(-1, top.mu.numel()).expand(top.upper[0], -1)}
    for name in ("down_1", "down_2", "up_1", "up_2"):
        module = getattr(model.codec, name)
        found |= {name: module.weight, f"{name}_bias": module.bias}
    return found | {"b": top.b, "d": top.d, "mu": top.mu, "centre": prior.centre, "axes": prior.axes}
