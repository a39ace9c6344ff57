"""The log of a training run: metrics.jsonl, the progress bar, and when to save or stop."""

import hashlib
import json
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import numpy as np
from rich import progress
from rich.console import Console
from torch import Tensor

from capspoe import distributed
from capspoe.atomic import disk_errors, write_atomic
from capspoe.errors import CapspoeError, DivergedError
from capspoe.run import checkpoint
from capspoe.run.checkpoint import DONE, State, hashes_of

WINDOW = 50  # steps in a line of metrics.jsonl
CHECKED_FILES = ("environment.json",)  # every checkpoint keeps their checksums
FINAL_FILES = (*CHECKED_FILES, "samples.png", "metrics.jsonl")  # the last one keeps these
PLAIN_SECONDS = 10  # between lines when stderr is not a terminal


class Interrupted(CapspoeError):
    """Training was interrupted and saved a checkpoint."""


class Window:
    """Sums of the metrics since the last line: only floats and lists, which JSON stores exactly."""

    def __init__(self, steps: int = 0, images: int = 0, sums: dict[str, Any] | None = None) -> None:
        self.steps = steps
        self.images = images
        self.sums = dict(sums or {})

    def add(self, images: int, values: dict[str, Any]) -> None:
        self.steps += 1
        self.images += images
        sums = {}
        for name, value in values.items():
            sums[name] = np.add(self.sums.get(name, 0.0), value).tolist()
        self.sums = sums

    def means(self) -> dict[str, Any]:
        return {name: np.divide(total, self.steps).tolist() for name, total in self.sums.items()}


class TrainingLog:
    """Use `stage` around the steps of a stage, `step` after each one, and `info` for messages.

    Only process 0 writes and prints; all processes save or stop after the same step.
    """

    def __init__(self, folder: Path, state: State, checkpoint_seconds: float, quiet: bool = False) -> None:
        quiet = quiet or not distributed.is_main()
        self.folder = folder
        self.checkpoint_seconds = checkpoint_seconds
        self.quiet = quiet
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.window = Window(**state.window)
        self.seconds_before = state.seconds
        self.began = time.monotonic()
        self.saved_at = self.window_began = self.said_at = time.monotonic()
        self.stop_requested = self.stopping = False
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        with disk_errors(folder):
            self.metrics = self._resumed_metrics(state)

    def _resumed_metrics(self, state: State) -> BinaryIO:
        """metrics.jsonl, truncated to its length at the checkpoint."""
        if not distributed.is_main():
            return open(os.devnull, "r+b")
        path = self.folder / "metrics.jsonl"
        path.touch()
        metrics = path.read_bytes()[: state.metrics_bytes]
        if state.metrics_sha256 and hashlib.sha256(metrics).hexdigest() != state.metrics_sha256:
            metrics = readable_lines(metrics)
            lines = metrics.count(b"\n")
            rescued = f"kept the {lines} readable lines"
            consequence = "The curves have a gap, the training is not affected"
            self.info(f"warning: {path} is damaged; {rescued}. {consequence}")
            write_atomic(path, metrics)
        os.truncate(path, len(metrics))
        return path.open("ab")

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def info(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, name: str, title: str, steps: int, done: int) -> Iterator[None]:
        """A stage of `steps` steps, `done` of which are finished, with a progress bar on a terminal."""
        self.name = name
        self.steps = steps
        self.done_before = done
        self.stage_began = self.window_began = time.monotonic()
        plain = not self.console.is_terminal
        if plain:
            resumed = f", resumed at {done}" if done else ""
            self.info(f"{title}: {steps} steps{resumed}")
        numbers = progress.TextColumn("{task.fields[numbers]}")
        self.progress = progress.Progress(
            *progress.Progress.get_default_columns(),
            numbers,
            console=self.console,
            disable=plain or self.quiet,
        )
        with self.progress:
            self.task = self.progress.add_task(title, total=steps, completed=done, numbers="")
            yield

    def step(self, step: int, images: int, metrics: dict[str, Any], show: tuple[str, ...]) -> None:
        """Log the metrics of a finished step; `show` names those for the progress bar."""
        self.window.add(images, metrics)
        for name, value in metrics.items():
            if isinstance(value, float) and not math.isfinite(value):
                where = f"in stage {self.name!r} at step {step}"
                advice = "lower the learning rate and run again (the last good checkpoint is kept)"
                raise DivergedError(f"training diverged {where}: {name} is not finite; {advice}")
        self.progress.update(self.task, completed=step)
        if self.window.steps < WINDOW and step < self.steps:
            return
        now = time.monotonic()
        means = self.window.means()
        rate = self.window.images / max(now - self.window_began, 1e-9)
        line = {"stage": self.name, "step": step, **means, "images_per_second": round(rate, 1)}
        with disk_errors(self.folder):
            self.metrics.write((json.dumps(line) + "\n").encode())
            self.metrics.flush()
        for listener in self.listeners:
            listener(line)
        numbers = "  ".join(f"{name.replace('_', ' ')} {means[name]:.4f}" for name in show)
        if self.console.is_terminal:
            self.progress.update(self.task, numbers=f"{rate:,.0f} images/s  {numbers}")
        elif now - self.said_at >= PLAIN_SECONDS or step == self.steps:
            seconds_per_step = (now - self.stage_began) / max(step - self.done_before, 1)
            left = seconds_per_step * (self.steps - step)
            self.info(f"  {step}/{self.steps}  {rate:,.0f} images/s  {left:.0f} s left  {numbers}")
            self.said_at = now
        self.window = Window()
        self.window_began = now

    def save_due(self) -> bool:
        """Whether to save now, because a process was asked to stop or enough time has passed. A collective call."""
        # Only the clock of process 0 counts; any process may ask to stop: 2 beats 1 beats 0.
        due = distributed.is_main() and time.monotonic() - self.saved_at >= self.checkpoint_seconds
        request = int(due)
        if self.stop_requested:
            request = 2
        decision = distributed.all_reduce_max(request)
        self.stopping = decision == 2
        return decision > 0

    def save(self, stage: str, step: int, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> None:
        """Add a checkpoint; then stop if requested."""
        if distributed.is_main():
            names = FINAL_FILES if stage == DONE else CHECKED_FILES
            state = State(
                stage,
                step,
                seconds=round(self.seconds, 3),
                metrics_bytes=self.metrics.tell(),
                window=vars(self.window),
                metrics_sha256=hashes_of(self.folder, "metrics.jsonl").get("metrics.jsonl", ""),
                files=hashes_of(self.folder, *names),
            )
            checkpoint.save(self.folder, state, weights, optimizer)
        self.saved()

    def saved(self) -> None:
        self.saved_at = time.monotonic()
        if self.stopping:
            distributed.all_reduce_max(0)  # a barrier
            raise Interrupted(f"stopped and saved; run the same command again to resume ({self.folder})")

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM saves and stops, the second stops at once."""

        def request(number: int, frame: FrameType | None) -> None:
            if self.stop_requested:
                sys.exit(128 + number)
            self.stop_requested = True
            if not self.quiet:  # print() is not safe in a signal handler
                with suppress(OSError):
                    os.write(2, b"\nstopping after this step; press Ctrl-C again to stop at once\n")

        numbers = (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread gets signals
            return
        previous = [signal.signal(number, request) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, previous, strict=True):
                signal.signal(number, handler)

    def close(self) -> None:
        with suppress(OSError):  # a full disk, already reported
            self.metrics.close()


def readable_lines(raw: bytes) -> bytes:
    """The lines that are valid JSON objects."""
    readable = []
    for line in raw.splitlines():
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(line), dict):
                readable.append(line + b"\n")
    return b"".join(readable)
