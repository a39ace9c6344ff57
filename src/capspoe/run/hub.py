"""The Hugging Face Hub: the layout of a model there, download and upload.

`CapsulePoE.load` reads the layout like a run folder.

README.md            the model card: settings, scores, a picture
summary.json         labels of the capsules, for pages about the network on machines without its test images
config.json          the settings, as in a run folder, and the SHA-256 of the weights
model.safetensors    the weights, with those of the recognition network if there is one
samples.png          the paper's Figure 3
"""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capspoe import __version__
from capspoe.atomic import write_atomic
from capspoe.config import data_name, train_command
from capspoe.errors import InputError, RunError
from capspoe.run.checkpoint import EXPORTED, json_bytes, settings, tensor_bytes
from capspoe.run.pictures import write_sample_grid

if TYPE_CHECKING:
    from capspoe.run.model import CapsulePoE

SUMMARY = "summary.json"
FILES = ("README.md", "config.json", EXPORTED, "samples.png", SUMMARY)
SMALL = 4096  # tensors with at most this many values keep their precision


def write(
    model: "CapsulePoE",
    run: Path | None,
    folder: Path,
    half: bool = False,
    summary: dict[str, Any] | None = None,
) -> list[Path]:
    """Write a network with its model card and the scores of the run; `half` stores large tensors as float16."""
    if (folder / "checkpoints").exists():
        raise RunError(f"{folder} is a run folder; export to another one")
    tensors = dict(model.state_dict())
    for name, tensor in tensors.items():
        if half and tensor.numel() > SMALL:
            tensors[name] = tensor.half()
    weights = tensor_bytes(tensors, {"format": "pt"})
    # A path means nothing on another machine.
    named = model.config.replace(data=data_name(model.config))
    config = settings(named, model.image, weights_sha256=hashlib.sha256(weights).hexdigest())
    write_sample_grid(model, folder / "samples.png")
    write_atomic(folder / EXPORTED, weights)
    write_atomic(folder / "config.json", json_bytes(config))
    write_atomic(folder / "README.md", card(model, run).encode(errors="replace"))
    content = dict(summary or {})
    content["scores"] = scores(run) if run else []
    write_atomic(folder / SUMMARY, json_bytes(content))
    return [folder / name for name in FILES]


def download(name: str | Path, **options: Any) -> Path:
    """The folder of a network: that folder itself, or a copy of NAME on the Hub in the Hub's local cache."""
    if Path(name).is_dir():
        return Path(name)
    with _library(name) as library:
        return Path(library.snapshot_download(str(name), allow_patterns=list(FILES), **options))


def upload(model: "CapsulePoE", run: Path | None, name: str, private: bool | None, **options: Any) -> str:
    """Create NAME on the Hub unless it exists, and commit the network to it; returns the commit's address."""
    with _library(name) as library, tempfile.TemporaryDirectory() as folder:
        write(model, run, Path(folder))
        hub = library.HfApi(**options)
        name = hub.create_repo(name, private=private, exist_ok=True).repo_id
        message = f"capspoe {__version__}"
        commit = hub.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
        return str(commit.commit_url)


@contextmanager
def _library(name: str | Path) -> Iterator[Any]:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError("the Hub needs its package: pip install 'capspoe[hub]'") from None
    try:
        yield huggingface_hub
    except (OSError, ValueError) as error:  # every error of huggingface_hub is one of them
        reason = " ".join(str(error).split())
        raise RunError(f"{name} is neither a folder nor within reach on the Hub: {reason}") from error


def card(model: "CapsulePoE", run: Path | None) -> str:
    name = data_name(model.config)
    height, width, channels = model.image
    I, M = model.stack[0].lower
    J, N = model.top.upper
    datasets = ""
    if name in ("mnist", "fashion-mnist", "cifar10"):  # the Hub has pages about these
        datasets = f"datasets: [{name}]\n"
    plural = "s" if channels > 1 else ""
    rows = dataclasses.asdict(model.config)
    del rows["data"]
    template = (files("capspoe.run") / "card.md").read_text(encoding="utf-8")
    return template.format(
        datasets=datasets,
        name=name,
        capsules=f"{I}x{M} lower and {J}x{N} upper capsules",
        image=f"{height}x{width} with {channels} channel{plural}",
        version=__version__,
        command=train_command(model.config),
        scores=(run and score_table(run)) or "None: `capspoe evaluate` had not been run before the export.",
        settings="\n".join(f"| {key} | {value} |" for key, value in rows.items()),
    )


def scores(run: Path) -> list[dict[str, Any]]:
    """The rows of `capspoe evaluate`, or those that an exported folder keeps; none if it has not been run."""
    for name, key in (("evaluation.json", "rows"), (SUMMARY, "scores")):
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            rows = json.loads((run / name).read_text(encoding="utf-8"))[key]
            if all(isinstance(row["name"], str) for row in rows):
                return [row for row in rows if "failed" not in row]
    return []


def score_table(run: Path) -> str:
    """The scores as a table; empty without any."""
    rows = scores(run)
    if not rows:
        return ""
    # All scores in order of appearance: not every row has every score.
    keys: list[str] = []
    for row in rows:
        for key in row:
            if key != "name" and key not in keys:
                keys.append(key)
    table = [["model", *keys], ["---"] * (1 + len(keys))]
    for row in rows:
        table.append([_cell(row.get(key)) for key in ("name", *keys)])
    table_text = "\n".join(f"| {' | '.join(line)} |" for line in table)
    return f"By `capspoe evaluate`, on the test images:\n\n{table_text}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
