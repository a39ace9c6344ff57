"""`capspoe export`."""

from pathlib import Path
from typing import Literal

from capspoe.commands.arguments import RunFolder, command


@command
def export(run: RunFolder, out: Path, format: tuple[Literal["hub", "onnx", "torch", "web"], ...] = ("hub",)) -> None:
    """Export a trained network for other programs.

    hub: README.md, config.json, model.safetensors, samples.png and summary.json, as the Hugging Face Hub wants them.
    onnx, torch: encoder and generator, as .onnx (needs the `export` extra) or as .pt2 of torch.export.
    web: index.html and its scripts, which run the network in the browser without a server.

    Args:
        out: The folder to write to.
        format: One or more formats.
    """
    from capspoe.export import export
    from capspoe.run.model import CapsulePoE

    print(*export(CapsulePoE.load(run), run, out, format), sep="\n")
