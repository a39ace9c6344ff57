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
from capspoe.train.codec_stage import CodecStage
from capspoe.train.stage import Schedule

MAX_POINTS = 240  # of each curve
STOPPED_SECONDS = 90  # without a change, after which an unfinished run counts as stopped


def training_status(folder: Path, config: Config, stage: str | None) -> dict[str, Any]:
    """Curves and progress of every stage, and whether the run still trains; `stage` is that of the checkpoint."""
    idle, images, stages = seconds_idle(folder), number_of_images(folder), []
    for name, lines in read_metrics(folder).items():
        epochs = config.autoencoder_epochs if name == CodecStage.name else config.epochs
        schedule = Schedule(epochs, config.batch_size, config.min_steps)
        planned = schedule.steps(images) if images else None
        kept = [*lines[: -1 : math.ceil(len(lines) / MAX_POINTS)], lines[-1]]
        curves = {metric: values.tolist() for metric, values in columns(kept).items() if metric != "use"}
        stages.append({"stage": name, "step": kept[-1]["step"], "planned": planned, "curves": curves})
    status = "finished" if stage == checkpoint.DONE else "training" if idle < STOPPED_SECONDS else "stopped"
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
        return images if isinstance(images, int) and images > 0 else None
    return None
