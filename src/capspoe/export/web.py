"""A page that runs the network in the browser, without a server: index.html, capsules.js and weights.js.

All three are plain scripts, so that the page works on any static host and from the disk.
weights.js holds what page/network.js reads: the shapes of the network, its weights as float16 in
base64, and what the capsules are called.
"""

import json
from base64 import b64encode
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from capspoe.atomic import write_atomic
from capspoe.config import data_name
from capspoe.errors import InputError
from capspoe.figures.summary import summary_of
from capspoe.figures.traversal import sliders
from capspoe.infer.polarity import Polarity
from capspoe.run.model import CapsulePoE

EXACT = 1024  # tensors with fewer values keep their precision


def write(model: CapsulePoE, run: Path, folder: Path) -> list[Path]:
    """Write the page of a network."""
    top = model.top
    cosine_routing = top.agreement.name == "cosine" and top.normalize == "lower"
    if len(model.layers) > 1 or not top.gate.one_on or not cosine_routing:
        possible = "one gated layer of capsules with cosine routing"
        raise InputError(f"the web page can show {possible}, not this network")
    page = files("capspoe.export") / "page"
    network_js = (page / "network.js").read_text(encoding="utf-8")
    page_js = (page / "page.js").read_text(encoding="utf-8")
    # The drawing pad is the explorer's, which is a module; plain scripts have no exports.
    pad_js = (files("capspoe.explorer") / "static" / "pad.js").read_text(encoding="utf-8")
    pad_js = pad_js.replace("export ", "")
    model_json = json.dumps(description(model, run), separators=(",", ":"))
    content = {
        "index.html": (page / "index.html").read_text(encoding="utf-8"),
        "capsules.js": "\n".join([network_js, pad_js, page_js]),
        "weights.js": f"const MODEL = {model_json};\n",
    }
    for name, text in content.items():
        write_atomic(folder / name, text.encode())
    return [folder / name for name in content]


@torch.no_grad()
def description(model: CapsulePoE, run: Path) -> dict[str, object]:
    """Everything that the page needs to know."""
    top = model.top
    J = top.upper[0]
    summary = summary_of(model, run)
    large: dict[str, Tensor] = {}
    small: dict[str, Tensor] = {}
    for name, tensor in tensors(model).items():
        values = tensor.detach().cpu().flatten()
        if len(values) >= EXACT:
            large[name] = values
        else:
            small[name] = values
    weights = np.concatenate([value.numpy().astype("<f2") for value in large.values()])
    return {
        "name": data_name(model.config),
        "image": model.image,
        "kernel": model.codec.kernel,
        "code": model.codec.code_shape,
        "lower": top.lower,
        "upper": top.upper,
        "iterations": top.iterations,
        "sharpness": top.sharpness,
        "neurons": top.neurons.name,
        "logitScale": model.config.logit_scale or float(model.logit_scale),
        "labels": summary.labels,
        "error": summary.error,
        "objectSize": summary.object_size,
        "dark": Polarity.of_network(model).dark,
        "sliders": [sliders(model, j) for j in range(J)],
        **{name: value.tolist() for name, value in small.items()},
        "sizes": [(name, len(value)) for name, value in large.items()],
        "weights": b64encode(weights.tobytes()).decode(),
    }


def tensors(model: CapsulePoE) -> dict[str, Tensor]:
    """The parameters by their names in network.js. The visible bias has a row for each capsule, shared or not."""
    top = model.top
    prior = model.prior
    # The order is that of the values in weights.js.
    parameters = {
        "w": top.w_JNMI.transpose(2, 3),
        "a": top.a.reshape(-1, top.mu.numel()).expand(top.upper[0], -1),
    }
    for name in ("down_1", "down_2", "up_1", "up_2"):
        module = getattr(model.codec, name)
        parameters[name] = module.weight
        parameters[f"{name}_bias"] = module.bias
    parameters["b"] = top.b
    parameters["d"] = top.d
    parameters["mu"] = top.mu
    parameters["centre"] = prior.centre
    parameters["axes"] = prior.axes
    return parameters
