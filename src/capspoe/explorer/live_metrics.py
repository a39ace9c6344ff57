"""The training curves of a run, also while it trains: what metrics.jsonl says so far."""

import json
import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from capspoe.config import Config
from capspoe.figures.curves import columns, read_metrics
from capspoe.run import checkpoint
from capspoe.training.build import planned_steps

MAX_POINTS = 240  # of each curve
STOPPED_SECONDS = 90  # without a change, after which an unfinished run counts as stopped


def training_status(folder: Path, config: Config, stage: str | None) -> dict[str, Any]:
    """Curves and progress of every stage, and whether the run still trains.

    `stage` is that of the checkpoint.
    """
    idle = seconds_idle(folder)
    images = number_of_images(folder)
    stages = []
    for name, lines in read_metrics(folder).items():
        planned = None
        if images:
            planned = planned_steps(config, name, images)
        # Evenly spaced lines, and always the last one.
        spacing = math.ceil(len(lines) / MAX_POINTS)
        points = [*lines[:-1:spacing], lines[-1]]
        curves = {}
        for metric, values in columns(points).items():
            if metric != "use":
                curves[metric] = values.tolist()
        step = lines[-1]["step"]
        stages.append({"stage": name, "step": step, "planned": planned, "curves": curves})
    if stage == checkpoint.DONE:
        status = "finished"
    elif idle < STOPPED_SECONDS:
        status = "training"
    else:
        status = "stopped"
    return {"status": status, "stage": stage, "images": images, "stages": stages}


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
        if isinstance(images, int) and images > 0:
            return images
    return None
