"""A run that is still training, as the page follows it: what metrics.jsonl says so far."""

import json
import math
import time
from pathlib import Path
from typing import Any

from capspoe import checkpoint
from capspoe.config import Config
from capspoe.stages import planned_steps

POINTS = 240  # of each curve
MOST_BYTES = 16 << 20  # of metrics.jsonl that are read, from its end
QUIET_SECONDS = 90  # after which an unfinished run counts as stopped


def training(folder: Path, config: Config, stage: str | None) -> dict[str, Any]:
    """Curves of every stage, how far it has come, and whether it still moves. `stage` is the checkpoint's."""
    stages = curves(folder / "metrics.jsonl")
    quiet = seconds_since_change(folder)
    images = number_of_images(folder)
    for entry in stages:
        first = entry["stage"] == "autoencoder"
        epochs = config.autoencoder.autoencoder_epochs if first else config.training.epochs
        entry["of"] = planned_steps(epochs, images, config.training) if images else None
    if stage == "done":
        status = "finished"
    else:
        status = "training" if quiet is not None and quiet < QUIET_SECONDS else "stopped"
    return {"status": status, "stage": stage, "quiet_seconds": quiet, "images": images, "stages": stages}


def curves(path: Path) -> list[dict[str, Any]]:
    """For every stage in order: its steps, and a curve for each number that its lines report."""
    stages: dict[str, dict[str, Any]] = {}
    for line in lines(path):
        name, step = line.get("stage"), line.get("step")
        if not isinstance(name, str) or not isinstance(step, int) or not is_number(step):
            continue
        stages.setdefault(name, {"lines": []})["lines"].append(line)
    found = []
    for name, content in stages.items():
        rows = content["lines"]
        kept = rows[:: max(1, math.ceil(len(rows) / POINTS))]
        if kept[-1] is not rows[-1]:
            kept = [*kept, rows[-1]]
        numbers = [k for k, v in rows[-1].items() if is_number(v) and k != "step"]
        found.append(
            {
                "stage": name,
                "step": rows[-1]["step"],
                "steps": [row["step"] for row in kept],
                "curves": {k: [row[k] if is_number(row.get(k)) else None for row in kept] for k in numbers},
                "use": shares(rows[-1].get("use")),
            }
        )
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file; one that is being written is left for the next time."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MOST_BYTES))
            raw = file.read(MOST_BYTES)
    except OSError:
        return []
    found = []
    for piece in raw.split(b"\n"):
        try:
            line = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def is_number(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def shares(use: Any) -> list[float] | None:
    return use if isinstance(use, list) and all(map(is_number, use)) else None


def seconds_since_change(folder: Path) -> float | None:
    times = []
    for path in (folder / "metrics.jsonl", folder / "codes.npy", *checkpoint.numbered(folder)):
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    return round(max(0.0, time.time() - max(times)), 1) if times else None


def number_of_images(folder: Path) -> int | None:
    try:
        images = json.loads((folder / "environment.json").read_text(encoding="utf-8"))["images"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return images if isinstance(images, int) and images > 0 else None
