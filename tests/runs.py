"""Settings of a run that takes a few seconds, and what tests do with runs."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

from capspoe.run import checkpoint
from capspoe.run.log import TrainingLog

QUICK = {
    "limit": 256,
    "channels": 8,
    "layers": "4x6",
    "autoencoder_epochs": 4,
    "epochs": 6,
    "min_steps": 0,
    "batch_size": 32,
    "prior_components": 2,
    "recognition_steps": 40,
    "checkpoint_seconds": 0.0,
    "threads": 1,
}


def options(settings: dict) -> list[str]:
    """Settings as words of the command line."""
    words = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return words


def capspoe(*arguments: object, **kwargs) -> subprocess.CompletedProcess:
    """Run the command in its own process."""
    command = [sys.executable, "-m", "capspoe", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **kwargs.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, **kwargs)


@contextmanager
def stopping_after(steps: int) -> Iterator[None]:
    """Request training to stop after this many steps, in whichever stage that is."""
    real, left = TrainingLog.step, steps

    def step(log: TrainingLog, *arguments, **named) -> None:
        nonlocal left
        real(log, *arguments, **named)
        left -= 1
        log.stop_requested = log.stop_requested or left == 0

    with mock.patch.object(TrainingLog, "step", step):
        yield


WAYS = ("deleted", "emptied", "truncated", "flipped")


def damage(path: Path, how: str, rng: random.Random) -> None:
    """Damage a file in one of the WAYS."""
    data = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "emptied" or not data:
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(data[: rng.randrange(len(data))])
    else:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return checkpoint.newest(folder).weights


def same_weights(one: Path, other: Path) -> bool:
    left, right = weights_of(one), weights_of(other)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def files_of(folder: Path) -> dict[str, str]:
    """Every file of a run with its hash."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
