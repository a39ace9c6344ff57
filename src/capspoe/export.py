"""A trained network for other programs: the encoder and the generator as ONNX or torch.export programs.

encoder     images (n, H, W, C) in [0, 1] -> on (n, J), hidden (n, J, N)
generator   capsule (n,) int64, white (n, N) -> images (n, H, W, C): one capsule on, its numbers given on the scale
            on which they have zero mean and unit variance over its training images
"""

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.durable import write_atomically, writing
from capspoe.errors import CapspoeError, InputError
from capspoe.model import CapsulePoE

Format = Literal["hub", "onnx", "torch"]
TOLERANCE = 1e-3  # by which an exported program may differ from PyTorch, of values of order 1


class Encoder(nn.Module):
    """`CapsulePoE.encode`, from tensors to tensors."""

    inputs, outputs = ("images",), ("on", "hidden")

    def __init__(self, model: CapsulePoE) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, images: Float[Tensor, "n H W C"]
    ) -> tuple[Float[Tensor, "n J"], Float[Tensor, "n J N"]]:
        model = self.model
        z = model.top(model.lift(model.autoencoder.encode(images.permute(0, 3, 1, 2)))).z
        return model.top.on_given_visible(z), model.top.hidden_given_visible(z)

    def example(self, count: int, seed: int = 0) -> tuple[Tensor, ...]:
        return (torch.rand(count, *self.model.image, generator=torch.Generator().manual_seed(seed)),)


class Generator(nn.Module):
    """A capsule and its whitened numbers to an image, by the reverse pass."""

    inputs, outputs = ("capsule", "white"), ("images",)

    def __init__(self, model: CapsulePoE) -> None:
        super().__init__()
        self.model = model

    def forward(self, capsule: Int[Tensor, " n"], white: Float[Tensor, "n N"]) -> Float[Tensor, "n H W C"]:
        model = self.model
        h_BN = model.top.hidden_given_visible(model.prior.from_white(capsule, white))
        on_BJ = F.one_hot(capsule, model.top.upper[0]).to(h_BN)
        h = on_BJ[:, :, None] * h_BN[:, None]
        # `reverse_weights` looks at numbers, which an exported program cannot; here one capsule is on in any case.
        weights = None if model.top.agreement == "cosine" else model.top.reverse(h)
        images = model.paint(h, weights)
        return images.permute(0, 2, 3, 1).contiguous()

    def example(self, count: int, seed: int = 0) -> tuple[Tensor, ...]:
        rng = torch.Generator().manual_seed(seed)
        J, N = self.model.top.upper
        return torch.randint(J, (count,), generator=rng), torch.randn(count, N, generator=rng)


def parts_of(model: CapsulePoE) -> dict[str, Encoder | Generator]:
    model = model.eval().to("cpu").requires_grad_(False)
    return {"encoder": Encoder(model).eval(), "generator": Generator(model).eval()}


def write_torch(model: CapsulePoE, folder: Path) -> list[Path]:
    """encoder.pt2 and generator.pt2, for torch.export.load; checked against the network they were made from."""
    written = []
    for name, part in parts_of(model).items():
        path = folder / f"{name}.pt2"
        temporary = path.with_name(f".{name}.writing.pt2")
        with writing(folder):
            try:
                with silent_exporter():
                    torch.export.save(program_of(part), temporary)
                compare(part, torch.export.load(temporary).module(), path)
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
        written.append(path)
    return written


def write_onnx(model: CapsulePoE, folder: Path) -> list[Path]:
    """encoder.onnx and generator.onnx; checked with onnxruntime against the network they were made from."""
    onnx, runtime = needed("onnx"), needed("onnxruntime")
    needed("onnxscript")
    written = []
    for name, part in parts_of(model).items():
        with silent_exporter():
            program = torch.onnx.export(
                program_of(part),
                input_names=part.inputs,
                output_names=part.outputs,
                dynamo=True,
                verbose=False,
            )
        assert program is not None
        proto = program.model_proto
        onnx.checker.check_model(proto, full_check=True)
        content, path = proto.SerializeToString(), folder / f"{name}.onnx"
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

        def run(
            *inputs: Tensor, session: Any = session, names: tuple[str, ...] = part.inputs
        ) -> list[Tensor]:
            given = {name: value.numpy() for name, value in zip(names, inputs, strict=True)}
            return [torch.from_numpy(output) for output in session.run(None, given)]

        compare(part, run, path)
        with writing(folder):
            write_atomically(path, content)
        written.append(path)
    return written


@contextlib.contextmanager
def silent_exporter() -> Iterator[None]:
    """Without PyTorch's remarks on the inner workings of its exporter."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def program_of(part: Encoder | Generator) -> torch.export.ExportedProgram:
    """The part as a graph that takes any number of images."""
    batch = torch.export.Dim("n", min=1)
    shapes = {name: {0: batch} for name in part.inputs}
    return torch.export.export(part, part.example(3), dynamic_shapes=shapes, strict=False)


@torch.no_grad()
def compare(part: Encoder | Generator, other: Any, path: Path) -> None:
    """Refuse an export that does not give what the network gives, for one image and for several."""
    for count in (1, 5):
        inputs = part.example(count, seed=count)
        ours, theirs = part(*inputs), other(*inputs)
        ours, theirs = (
            outputs if isinstance(outputs, (tuple, list)) else (outputs,) for outputs in (ours, theirs)
        )
        for name, one, another in zip(part.outputs, ours, theirs, strict=True):
            scale = max(1.0, float(one.abs().max()))
            difference = float((one - another).abs().max()) / scale
            if one.shape != another.shape or not difference <= TOLERANCE:
                raise CapspoeError(
                    f"{path.name} would differ from the network by {difference:.2g} in {name!r}"
                )


def needed(package: str) -> ModuleType:
    """A package of the `export` extra, or one line that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(f"ONNX needs the package {package}: pip install 'capspoe[export]'") from None


def export(model: CapsulePoE, run: Path, folder: Path, formats: tuple[Format, ...]) -> list[Path]:
    """Write the network into a folder, in each of the formats."""
    from capspoe import hub

    writers = {
        "hub": lambda: hub.write(model, run, folder),
        "onnx": lambda: write_onnx(model, folder),
        "torch": lambda: write_torch(model, folder),
    }
    if "onnx" in formats:
        for package in ("onnx", "onnxruntime", "onnxscript"):
            needed(package)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return [path for name in formats for path in writers[name]()]
