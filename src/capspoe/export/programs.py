"""The encoder and the generator of a trained network as ONNX or torch.export programs.

encoder     images (n, H, W, C) in [0, 1] -> on (n, J), hidden (n, J, N)
generator   capsule (n,) int64, white (n, N) -> images (n, H, W, C): one capsule on, its pose whitened: zero mean and
            unit variance over the capsule's training images
"""

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from capspoe.atomic import write_atomic
from capspoe.errors import CapspoeError, InputError
from capspoe.run.model import CapsulePoE

TOLERANCE = 1e-3  # largest difference from PyTorch that is accepted, relative to values of order 1

Program = Callable[..., Any]


class Encoder(nn.Module):
    """`CapsulePoE.encode`, from tensors to tensors."""

    inputs = ("images",)
    outputs = ("on", "hidden")

    def __init__(self, model: CapsulePoE) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "n H W C"]) -> tuple[Float[Tensor, "n J"], Float[Tensor, "n J N"]]:
        up = self.model.up(images.permute(0, 3, 1, 2))
        return up.on, up.hidden

    def example(self, count: int, seed: int = 0) -> tuple[Tensor, ...]:
        rng = torch.Generator().manual_seed(seed)
        return (torch.rand(count, *self.model.image, generator=rng),)


class Generator(nn.Module):
    """A capsule and its whitened pose to an image."""

    inputs = ("capsule", "white")
    outputs = ("images",)

    def __init__(self, model: CapsulePoE) -> None:
        super().__init__()
        self.model = model

    def forward(self, capsule: Int[Tensor, " n"], white: Float[Tensor, "n N"]) -> Float[Tensor, "n H W C"]:
        images = self.model.decode_pose(capsule, self.model.prior.from_white(capsule, white))
        return images.permute(0, 2, 3, 1).contiguous()

    def example(self, count: int, seed: int = 0) -> tuple[Tensor, ...]:
        rng = torch.Generator().manual_seed(seed)
        J, N = self.model.top.upper
        return torch.randint(J, (count,), generator=rng), torch.randn(count, N, generator=rng)


Part = Encoder | Generator


def write(model: CapsulePoE, folder: Path, format: Literal["onnx", "torch"]) -> list[Path]:
    """Write the encoder and the generator, after comparing each with the network it was made from."""
    model = model.eval().to("cpu").requires_grad_(False)
    suffix = "onnx" if format == "onnx" else "pt2"
    convert = to_onnx if format == "onnx" else to_torch
    written = []
    for name, part in (("encoder", Encoder(model)), ("generator", Generator(model))):
        path = folder / f"{name}.{suffix}"
        content, program = convert(part.eval())
        compare(part, program, path.name)
        write_atomic(path, content)
        written.append(path)
    return written


def to_torch(part: Part) -> tuple[bytes, Program]:
    """The part as a file for torch.export.load, and what that file computes."""
    buffer = io.BytesIO()
    with silent_exporter():
        torch.export.save(graph(part), buffer)
    buffer.seek(0)
    return buffer.getvalue(), torch.export.load(buffer).module()


def to_onnx(part: Part) -> tuple[bytes, Program]:
    """The part as an ONNX file, and what onnxruntime computes from it."""
    onnx, runtime = require_onnx()
    with silent_exporter():
        program = torch.onnx.export(
            graph(part), input_names=part.inputs, output_names=part.outputs, dynamo=True, verbose=False
        )
    assert program is not None
    onnx.checker.check_model(program.model_proto, full_check=True)
    content = program.model_proto.SerializeToString()
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(*inputs: Tensor) -> list[Tensor]:
        given = {name: value.numpy() for name, value in zip(part.inputs, inputs, strict=True)}
        return [torch.from_numpy(output) for output in session.run(None, given)]

    return content, run


def require_onnx() -> tuple[ModuleType, ModuleType]:
    """The packages onnx and onnxruntime, or an error that says how to install them."""
    packages = []
    # PyTorch's exporter needs onnxscript; we do not use it ourselves.
    for name in ("onnx", "onnxruntime", "onnxscript"):
        try:
            packages.append(importlib.import_module(name))
        except ImportError:
            advice = "pip install 'capspoe[export]'"
            raise InputError(f"ONNX needs the package {name}: {advice}") from None
    onnx, onnxruntime, _ = packages
    return onnx, onnxruntime


@contextlib.contextmanager
def silent_exporter() -> Iterator[None]:
    """Hide PyTorch's warnings about its exporter."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def graph(part: Part) -> torch.export.ExportedProgram:
    """The part as a graph for any number of images."""
    batch = torch.export.Dim("n", min=1)
    shapes = {name: {0: batch} for name in part.inputs}
    return torch.export.export(part, part.example(3), dynamic_shapes=shapes, strict=False)


@torch.no_grad()
def compare(part: Part, program: Program, name: str) -> None:
    """Refuse a program that computes something other than the network does, for one image or for several."""
    for count in (1, 5):
        inputs = part.example(count, seed=count)
        ours = as_tuple(part(*inputs))
        theirs = as_tuple(program(*inputs))
        for output, one, other in zip(part.outputs, ours, theirs, strict=True):
            difference = float((one - other).abs().max()) / max(1.0, float(one.abs().max()))
            # `not <=` also refuses NaN.
            if one.shape != other.shape or not difference <= TOLERANCE:
                problem = f"by {difference:.2g} in {output!r}"
                raise CapspoeError(f"{name} would differ from the network {problem}")


def as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    """The outputs of a program, also if there is only one."""
    if isinstance(outputs, (tuple, list)):
        return tuple(outputs)
    return (outputs,)
