"""`capspoe export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from capspoe.commands.arguments import RunFolder, parse


@dataclass(frozen=True)
class Export:
    """Export a trained network for other programs.

    hub: README.md, config.json, model.safetensors and samples.png, the layout of the Hugging Face Hub.
    onnx, torch: encoder and generator, as .onnx (needs the `export` extra) or as .pt2 of torch.export.
    web: index.html and its scripts, which run the network in the browser without a server.
    """

    run: RunFolder
    out: Path
    """The folder to write to."""
    format: tuple[Literal["hub", "onnx", "torch", "web"], ...] = ("hub",)
    """One or more formats."""


def export(argv: list[str]) -> None:
    a = parse(Export, "export", argv)
    from capspoe.export import export as write
    from capspoe.run.model import CapsulePoE

    print(*write(CapsulePoE.load(a.run), a.run, a.out, a.format), sep="\n")
