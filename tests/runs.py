"""A run that takes a few seconds, and what tests say of runs."""

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

from capspoe import checkpoint
from capspoe.journal import Journal

QUICK = {
    "limit": 256,
    "channels": 8,
    "layers": "4x6",
    "autoencoder_epochs": 4,
    "epochs": 6,
    "least_steps": 0,
    "batch": 32,
    "components": 2,
    "checkpoint_seconds": 0.0,
    "threads": 1,
}


def options(settings: dict) -> list[str]:
    """Settings as the command line takes them."""
    words = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        else:
            words += [flag, str(value)]
    return words


def capspoe(*arguments: object, **kwargs) -> subprocess.CompletedProcess:
    """The command, in a process of its own."""
    command = [sys.executable, "-m", "capspoe", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", **kwargs.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, **kwargs)


@contextmanager
def stopping_after(steps: int) -> Iterator[None]:
    """Training is asked to stop after so many steps, whichever stage that is in."""
    real, left = Journal.step, steps

    def step(journal: Journal, *arguments, **named) -> None:
        nonlocal left
        real(journal, *arguments, **named)
        left -= 1
        journal.stop_requested = journal.stop_requested or left == 0

    with mock.patch.object(Journal, "step", step):
        yield


WAYS = ("deleted", "emptied", "truncated", "flipped")


def damage(path: Path, how: str, rng: random.Random) -> None:
    """What may happen to a file, in one of the WAYS."""
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
