"""A trained network in the layout that the Hugging Face Hub expects of a model, to be read back from it.

README.md            the model card: what it is, its settings, its numbers, a picture
config.json          the settings, as in a run folder, and the SHA-256 of the weights
model.safetensors    the weights
samples.png          the paper's figure 3
"""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import safetensors
import safetensors.torch
from torch import Tensor

from capspoe import __version__, checkpoint
from capspoe.durable import write_atomically, writing
from capspoe.errors import RunError

if TYPE_CHECKING:
    from capspoe.model import CapsulePoE

WEIGHTS = "model.safetensors"
LFS = b"version https://git-lfs"  # what stands in for a large file that git has not fetched


def write(model: "CapsulePoE", run: Path, folder: Path) -> list[Path]:
    """The network of a run, with its card."""
    from capspoe.figures import write_grid

    if (folder / "checkpoints").exists():
        raise RunError(f"{folder} is a run folder; export into another one")
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    content = safetensors.torch.save(weights, {"format": "pt"})
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_grid(model, folder / "samples.png")
        write_atomically(folder / WEIGHTS, content)
        weights_sha256 = hashlib.sha256(content).hexdigest()
        settings = checkpoint.settings(model.config, model.image, weights_sha256=weights_sha256)
        write_atomically(folder / "config.json", (json.dumps(settings, indent=2) + "\n").encode())
        write_atomically(folder / "README.md", card(model, run).encode(errors="replace"))
    return [folder / name for name in ("README.md", "config.json", WEIGHTS, "samples.png")]


def exported(folder: Path) -> bool:
    """Whether the folder holds weights in this layout, and no run."""
    return (folder / WEIGHTS).exists() and not checkpoint.numbered(folder)


def newest(folder: Path) -> checkpoint.Saved:
    """What a run has come to, or what was exported of one: that is finished, and has no past."""
    if exported(folder):
        return checkpoint.Saved(checkpoint.State("done", 0), read(folder), {}, [])
    return checkpoint.newest(folder)


def read(folder: Path) -> dict[str, Tensor]:
    """The weights of such a folder, checked."""
    path = folder / WEIGHTS
    try:
        content = path.read_bytes()
        expected = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("weights_sha256")
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    if content.startswith(LFS):
        raise RunError(f"{path} is a pointer of Git LFS, not the weights; fetch them with `git lfs pull`")
    if expected is not None and hashlib.sha256(content).hexdigest() != expected:
        raise RunError(f"{path} is damaged: its checksum is not the one in config.json")
    try:
        return safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise RunError(f"{path} is not a safetensors file") from error


def card(model: "CapsulePoE", run: Path) -> str:
    """The model card."""
    config, (height, width, colours) = model.config, model.image
    name = Path(config.data.data).name
    (I, M), (J, N) = model.stack[0].lower, model.top.upper
    front = [
        "---",
        "library_name: capspoe",
        "pipeline_tag: unconditional-image-generation",
        *([f"datasets: [{name}]"] if name in ("mnist", "fashion-mnist", "cifar10") else []),
        "tags: [capsule-networks, routing-by-agreement, energy-based-model, unsupervised-learning]",
        "---",
    ]
    numbers = measured(run)
    lines = [
        *front,
        "",
        f"# Capsules trained without labels on {name}",
        "",
        f"{I}x{M} lower and {J}x{N} upper capsules on images of {height}x{width} with {colours} "
        f"channel{'s' if colours > 1 else ''}, trained by capspoe {__version__} after Hauser 2019, *Training "
        "capsules as a routing-weighted product of expert neurons* (arXiv 1907.11639).",
        "",
        "![Samples, a column a capsule](samples.png)",
        "",
        "Each column is one capsule, switched on alone; nothing is picked.",
        "",
        "## Use",
        "",
        "```python",
        "import capspoe",
        "",
        'model = capspoe.CapsulePoE.load("path/to/this/folder")',
        "images = model.sample(20).images",
        "on, hidden = model.encode(images)",
        "```",
        "",
        "## Numbers",
        "",
        *(numbers or ["None: `capspoe evaluate` had not been run when this was exported."]),
        "",
        "## Settings",
        "",
        "| setting | value |",
        "|---|---|",
        *(
            f"| {key} | {value} |"
            for part in dataclasses.asdict(config).values()
            for key, value in part.items()
            if key != "data"
        ),
        "",
        "## Limits",
        "",
        "The network knows the images it was trained on and their size; others are coded, but not well. It may paint "
        "images close to those it has seen.",
        "",
    ]
    return "\n".join(lines)


def measured(run: Path) -> list[str]:
    """What `capspoe evaluate` found, as a table and lines; nothing if it has not been run."""
    from capspoe.evaluate.table import COLUMNS, cell, lines

    try:
        found = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
        rows = [
            f"| {row['name']} | " + " | ".join(cell(row, key) for key in COLUMNS) + " |"
            for row in found["rows"]
            if "failed" not in row
        ]
        said = lines(found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []
    titles = [title for title, _ in COLUMNS.values()]
    head = [f"| model | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|", *rows, ""] if rows else []
    return ["By `capspoe evaluate`, on the data's test images:", "", *head, *(f"- {line}" for line in said)]
