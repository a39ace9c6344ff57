"""A run folder before it is carried on: what is damaged is named, and mended where that is possible."""

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from capspoe import checkpoint, codes, data, guide
from capspoe.checkpoint import Saved
from capspoe.config import Config
from capspoe.durable import write_atomically, writing
from capspoe.errors import RunError
from capspoe.figures import write_grid
from capspoe.model import CapsulePoE

Say = Callable[[str], object]

LOOKED_AT = 256  # images by which a run knows many of them again
ALL_OF = 256 << 20  # and so many bytes are looked at altogether


def teller(quiet: bool) -> Say:
    """Lines for a person, on stderr, as they are."""
    return partial(Console(stderr=True, quiet=quiet, highlight=False).print, markup=False, soft_wrap=True)


def fingerprint(source: data.Source, name: str) -> str:
    """A hash of how many images there are, of which shape, and of all of them.

    Of some spread over the whole, where that would take long, or where their name says that they were checked.
    """
    seen = hashlib.sha256(json.dumps([len(source), source.shape]).encode())
    checked = name in {entry.name for entry in data.catalog()}
    count = len(source) if source.nbytes <= ALL_OF and not checked else min(len(source), LOOKED_AT)
    for pixels in source.batches(LOOKED_AT, np.linspace(0, len(source) - 1, count).astype(np.int64)):
        seen.update(pixels.tobytes())
    return seen.hexdigest()


def write_environment(folder: Path, content: dict[str, Any]) -> None:
    with writing(folder):
        write_atomically(folder / "environment.json", json.dumps(content, indent=2).encode())


def check_images(folder: Path, images_sha256: str) -> None:
    """Refuse to carry on a run with other images than those with which it began."""
    try:
        began = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["images_sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return
    if began != images_sha256:
        raise RunError(
            f"the images are not those with which {folder} began (they were changed, added or removed); "
            "bring them back, or choose another --out"
        )


def mend(folder: Path, config: Config, saved: Saved | None, environment: dict[str, Any], say: Say) -> None:
    """Name everything that is damaged, drop what cannot be used, and write again what is known anyway."""
    run = checkpoint.open_run(folder)
    if run.damaged:
        say(f"warning: {run.damaged}; written again from the newest checkpoint")
    if run.damaged or run.config.data != config.data:  # the images may have moved since
        checkpoint.create(folder, run.config.replace(data=config.data.data), run.image)
    for problem in saved.damaged if saved else []:
        say(f"warning: {problem}; carrying on from the checkpoint before it")
    if saved and saved.damaged:
        checkpoint.drop_damaged(folder)
    lost = saved is not None and "environment.json" in checkpoint.changed_files(folder, saved.state)
    if lost:
        say(f"warning: {folder / 'environment.json'} is missing or damaged; it now tells of this machine")
    if lost or not (folder / "environment.json").exists():
        write_environment(folder, environment)


def mend_finished(folder: Path, model: CapsulePoE, saved: Saved, say: Say) -> None:
    """Name what is damaged in a finished run; its picture can be painted again."""
    state, metrics = saved.state, folder / "metrics.jsonl"
    found = checkpoint.hashes_of(folder, metrics.name).get(metrics.name)
    if state.metrics_sha256 and found != state.metrics_sha256:
        say(f"warning: {metrics} is missing or damaged; the curves are lost, the network is whole")
    if "samples.png" in checkpoint.changed_files(folder, state):
        say(f"warning: {folder / 'samples.png'} is missing or damaged; painting it again")
        write_grid(model, folder / "samples.png")
    codes.remove(folder)  # a kill between the last checkpoint and their removal left them
    guide.remove(folder)
