"""The training curves of a run, also while it trains: what metrics.jsonl says so far."""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from capspoe.config import Config
from capspoe.run import checkpoint
from capspoe.run.log import readable_lines
from capspoe.training.loops import planned_steps

MAX_POINTS = 240  # of each curve
MAX_BYTES = 16 << 20  # of metrics.jsonl that are read, from its end
STOPPED_SECONDS = 90  # without a change, after which an unfinished run counts as stopped


def training_status(folder: Path, config: Config, stage: str | None) -> dict[str, Any]:
    """Curves and progress of every stage, and whether the run still trains; `stage` is that of the checkpoint."""
    stages = read_curves(folder / "metrics.jsonl")
    idle, images = seconds_idle(folder), number_of_images(folder)
    for entry in stages:
        epochs = config.autoencoder_epochs if entry["stage"] == checkpoint.AUTOENCODER else config.epochs
        entry["planned"] = planned_steps(epochs, images, config) if images else None
    status = "finished" if stage == checkpoint.DONE else "training" if idle < STOPPED_SECONDS else "stopped"
    return {"status": status, "stage": stage, "images": images, "stages": stages}


def read_curves(path: Path) -> list[dict[str, Any]]:
    """For every stage in order: the number of its last step, and a curve of every number in its lines."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for line in read_lines(path):
        if (
            isinstance(line.get("stage"), str)
            and isinstance(line.get("step"), int)
            and is_number(line["step"])
        ):
            stages.setdefault(line["stage"], []).append(line)
    curves = []
    for stage, lines in stages.items():
        last, kept = lines[-1], lines[:: math.ceil(len(lines) / MAX_POINTS)]
        if kept[-1] is not last:
            kept.append(last)
        names = [name for name in last if all(is_number(row.get(name)) for row in kept)]
        values = {name: [row[name] for row in kept] for name in names}
        curves.append({"stage": stage, "step": last["step"], "curves": values})
    return curves


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of the file; one that is still being written is skipped."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - MAX_BYTES))
        return [json.loads(line) for line in readable_lines(file.read(MAX_BYTES)).splitlines()]
    return []


def is_number(value: Any) -> bool:
    """Whether it is a number that JSON and a browser can hold: finite, and not too large an integer."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def seconds_idle(folder: Path) -> float:
    """Seconds since training last wrote to the folder."""
    times = [0.0]
    for path in (folder / "metrics.jsonl", folder / "codes.npy", *checkpoint.numbered(folder)):
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return time.time() - max(times)


def number_of_images(folder: Path) -> int | None:
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        images = json.loads((folder / "environment.json").read_bytes())["images"]
        return images if isinstance(images, int) and images > 0 else None
    return None
