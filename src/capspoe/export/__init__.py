"""A trained network for other programs: the layout of the Hugging Face Hub, ONNX, torch.export."""

from pathlib import Path
from typing import Literal

from capspoe.export import programs
from capspoe.run import hub
from capspoe.run.atomic import disk_errors
from capspoe.run.model import CapsulePoE

Format = Literal["hub", "onnx", "torch"]


def export(model: CapsulePoE, run: Path, folder: Path, formats: tuple[Format, ...] = ("hub",)) -> list[Path]:
    """Write the network of a run to a folder, in each of the formats; returns the files written."""
    if "onnx" in formats:
        programs.require_onnx()  # before anything is written
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in formats:
        written += hub.write(model, run, folder) if name == "hub" else programs.write(model, folder, name)
    return written
