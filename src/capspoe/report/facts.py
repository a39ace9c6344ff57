"""What a run folder says of itself: settings, timings, machine, and the command that made it."""

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from capspoe.config import Config, preset
from capspoe.errors import RunError


def read_json(path: Path) -> Any:
    """The content of a file, or None without one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(f"{path} cannot be read as JSON; make it again or delete it") from error


def machine(run: Path) -> dict[str, Any]:
    """What environment.json says of where the run was made; nothing if it says nothing."""
    found = read_json(run / "environment.json")
    return found if isinstance(found, dict) else {}


def made_by(config: Config) -> str:
    """The shortest `capspoe train` command that gives these settings."""
    best: list[str] | None = None
    for name in ("small", "paper"):
        for literal in (False, True):
            for neurons in (None, "binary"):
                start = preset(name, config.data.data, literal, neurons)
                words = [] if name == "small" else ["--preset", name]
                words += ["--literal"] if literal else []
                words += ["--neurons", "binary"] if neurons and not literal else []
                words += _differences(start, config, skip={"neurons"} if neurons else set())
                if start.capsules.neurons != config.capsules.neurons and neurons:
                    continue
                if best is None or len(words) < len(best):
                    best = words
    words = ["capspoe", "train", Path(config.data.data).name or config.data.data, *(best or [])]
    return shlex.join(words)


def _differences(start: Config, config: Config, skip: set[str]) -> list[str]:
    words = []
    for part in dataclasses.fields(Config):
        ours, theirs = getattr(config, part.name), getattr(start, part.name)
        for f in dataclasses.fields(ours):
            value = getattr(ours, f.name)
            if value == getattr(theirs, f.name) or f.name in skip or f.name == "data":
                continue
            flag = "--" + f.name.replace("_", "-")
            if isinstance(value, bool):
                words.append(flag if value else flag.replace("--", "--no-", 1))
            else:
                words += [flag, str(value)]
    return words


def timings(stages: dict[str, list[dict[str, Any]]], batch: int) -> dict[str, dict[str, Any]]:
    """Steps, speed and time of each stage, from its lines of metrics.jsonl."""
    found = {}
    for stage, lines in stages.items():
        steps = np.diff([0, *(line["step"] for line in lines)])
        rates = np.array([max(line["images_per_second"], 1e-9) for line in lines])
        found[stage.replace("-0", "") if "capsules-1" not in stages else stage] = {
            "steps": int(lines[-1]["step"]),
            "images per second": round(float(np.median(rates))),
            "about seconds": round(float((steps * batch / rates).sum())),
        }
    return found


def settings(config: Config) -> dict[str, dict[str, Any]]:
    """The settings by part; a path is shortened to its last name."""
    parts = dataclasses.asdict(config)
    parts["data"]["data"] = Path(parts["data"]["data"]).name or parts["data"]["data"]
    return parts


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.1f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
