"""A trained network for other programs: the Hugging Face Hub, ONNX, torch.export, a web page."""

from pathlib import Path
from typing import Literal

from capspoe.errors import InputError
from capspoe.export import programs, web
from capspoe.figures.summary import summary_of
from capspoe.run import hub
from capspoe.run.checkpoint import EXPORTED
from capspoe.run.model import CapsulePoE

Format = Literal["hub", "onnx", "torch", "web"]


# What each format writes under names that other programs use, too.
COMMON_NAMES = {"hub": ("README.md", "config.json"), "web": ("index.html",)}


def refuse_other_files(folder: Path, formats: tuple[Format, ...]) -> None:
    """Refuse to overwrite files that are not those of an earlier export."""
    exported_before = (folder / EXPORTED).exists()
    for name in (name for format in formats for name in COMMON_NAMES.get(format, ())):
        path = folder / name
        if path.exists() and not exported_before and b"capspoe" not in path.read_bytes():
            raise InputError(f"{path} was not written by capspoe export; choose another folder for --out")


def export(model: CapsulePoE, run: Path, folder: Path, formats: tuple[Format, ...] = ("hub",)) -> list[Path]:
    """Write the network of a run to a folder, in each of the formats; return the files written."""
    if "onnx" in formats:
        programs.require_onnx()  # before anything is written
    refuse_other_files(folder, formats)
    written = []
    for name in formats:
        if name in ("onnx", "torch"):
            written += programs.write(model, folder, name)
        elif name == "hub":
            written += hub.write(model, run, folder, summary=summary_of(model, run)._asdict())
        else:
            written += web.write(model, run, folder)
    return written
