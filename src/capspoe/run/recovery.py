"""Recovery of a run folder before it is resumed: report damage, and rewrite what can be restored."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from capspoe.atomic import remove_files, write_atomic
from capspoe.errors import RunError
from capspoe.model.network import Network
from capspoe.run import checkpoint, codes
from capspoe.run.checkpoint import Saved
from capspoe.run.pictures import write_sample_grid


def check_same_images(folder: Path, images_sha256: str) -> None:
    """Refuse to resume a run with other images."""
    try:
        environment = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
        stored_sha256 = environment["images_sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return  # `recover` reports the damage
    if stored_sha256 != images_sha256:
        change = f"the images differ from those with which {folder} began (changed, added or removed)"
        raise RunError(f"{change}; restore them, or choose another --out")


def recover(folder: Path, network: Network, saved: Saved | None, environment: dict[str, Any], quiet: bool) -> None:
    """Report all damage, remove what cannot be used, and rewrite what can be restored."""

    def warn(line: str) -> None:
        if not quiet:
            print(f"warning: {line}", file=sys.stderr)

    run = checkpoint.open_run(folder)
    data = network.config.data
    if run.problem:
        warn(f"{run.problem}; restored from the newest checkpoint")
    if run.problem or run.config.data != data:  # the images may have moved
        checkpoint.create(folder, run.config.replace(data=data), run.image)
    changed: list[str] = []
    if saved:
        changed = checkpoint.changed_files(folder, saved.state)
    described = folder / "environment.json"
    if described.name in changed:
        warn(f"{described} is missing or damaged; it now describes this machine")
    if described.name in changed or not described.exists():
        write_atomic(described, checkpoint.json_bytes(environment))
    if saved is None:
        return
    for problem in saved.problems:
        warn(f"{problem}; resuming from the checkpoint before it")
    for path in checkpoint.numbered(folder):
        # A newer checkpoint is a damaged one, and must not push out an intact one.
        if int(path.name) <= int(saved.path.name):
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
    if saved.state.stage == checkpoint.DONE:
        remove_files(folder, *codes.FILES)
    if "metrics.jsonl" in changed:
        consequence = "the curves are lost, the network is intact"
        warn(f"{folder / 'metrics.jsonl'} is missing or damaged; {consequence}")
    if "samples.png" in changed:
        warn(f"{folder / 'samples.png'} is missing or damaged; drawing it again")
        write_sample_grid(network, folder / "samples.png")
