"""`capspoe export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from capspoe.commands.parsing import parse


def export(argv: list[str]) -> None:
    import tyro

    @dataclass(frozen=True)
    class Export:
        """A trained network for other programs.

        hub: README.md, config.json, model.safetensors and samples.png, as the Hugging Face Hub wants a model.
        onnx, torch: encoder and generator, as .onnx (needs the `export` extra) or as torch.export's .pt2.
        """

        run: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="RUN")]]
        """The run folder."""
        out: Path
        """The folder to write to."""
        format: tuple[Literal["hub", "onnx", "torch"], ...] = ("hub",)
        """One or more of the three."""

    a = parse(Export, "export", argv)
    from capspoe.export import export as write
    from capspoe.model import CapsulePoE

    print(*write(CapsulePoE.load(a.run), a.run, a.out, a.format), sep="\n")
