"""A trained network for other programs: the Hugging Face Hub, ONNX, torch.export, a web page."""

from pathlib import Path
from typing import Literal

from capspoe.export import programs, web
from capspoe.figures.summary import summary_of
from capspoe.run import hub
from capspoe.run.model import CapsulePoE

Format = Literal["hub", "onnx", "torch", "web"]


def export(model: CapsulePoE, run: Path, folder: Path, formats: tuple[Format, ...] = ("hub",)) -> list[Path]:
    """Write the network of a run to a folder, in each of the formats; return the files written."""
    if "onnx" in formats:
        programs.require_onnx()  # before anything is written
    written = []
    for name in formats:
        if name in ("onnx", "torch"):
            written += programs.write(model, folder, name)
        elif name == "hub":
            written += hub.write(model, run, folder, summary=summary_of(model, run)._asdict())
        else:
            written += web.write(model, run, folder)
    return written
