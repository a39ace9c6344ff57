"""What a training run says while it goes on: metrics.jsonl, the progress line, and when to save or stop."""

import hashlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from torch import Tensor

from capspoe import checkpoint, distributed
from capspoe.checkpoint import State, hashes_of
from capspoe.durable import write_atomically, writing
from capspoe.errors import CapspoeError, DivergedError

WINDOW = 50  # steps that make a line of metrics.jsonl
FIXED_FILES = ("environment.json",)  # whose checksums a checkpoint keeps
FINAL_FILES = (*FIXED_FILES, "samples.png")  # and the last one
PLAIN_SECONDS = 10  # between lines when the output is not a terminal


class Interrupted(CapspoeError):
    """Training was asked to stop, and saved what it had."""


class Window:
    """Sums of what the steps reported since the last line. Floats and lists only, so JSON keeps them exactly."""

    def __init__(self, stored: dict[str, Any] | None = None) -> None:
        stored = stored or {"steps": 0, "images": 0, "sums": {}}
        self.steps, self.images = int(stored["steps"]), int(stored["images"])
        self.sums: dict[str, Any] = dict(stored["sums"])

    def add(self, images: int, values: dict[str, Any]) -> None:
        self.steps += 1
        self.images += images
        for name, value in values.items():
            if isinstance(value, list):
                old = self.sums.get(name, [0.0] * len(value))
                self.sums[name] = [a + b for a, b in zip(old, value, strict=True)]
            else:
                self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self) -> dict[str, Any]:
        def mean(total: Any) -> Any:
            return [v / self.steps for v in total] if isinstance(total, list) else total / self.steps

        return {name: mean(total) for name, total in self.sums.items()}

    def stored(self) -> dict[str, Any]:
        return {"steps": self.steps, "images": self.images, "sums": self.sums}


class Journal:
    """One run's record: a `stage` around its steps, `step` after each of them, `say` what a person should know.

    Of several processes the first one writes and speaks; all of them save or stop after the same step.
    """

    def __init__(self, folder: Path, state: State, checkpoint_seconds: float, quiet: bool = False) -> None:
        quiet = quiet or not distributed.first()
        self.folder, self.checkpoint_seconds, self.quiet = folder, checkpoint_seconds, quiet
        self.console = Console(stderr=True, quiet=quiet, highlight=False)
        self.window = Window(state.window or None)
        self.seconds_before, self.began = state.seconds, time.monotonic()
        self.saved_at = self.window_began = self.said_at = time.monotonic()
        self.stop_requested = self.stopping = False
        self.listeners: list[Callable[[dict[str, Any]], None]] = []
        self.progress: Progress | None = None
        with writing(folder):
            self.metrics, self.digest = self._resumed_metrics(state)

    def _resumed_metrics(self, state: State) -> tuple[BinaryIO, Any]:
        """metrics.jsonl as it was at the checkpoint; lines written after it are written again."""
        if not distributed.first():
            return open(os.devnull, "r+b"), hashlib.sha256()
        path = self.folder / "metrics.jsonl"
        path.touch()
        kept = path.read_bytes()[: state.metrics_bytes]
        if state.metrics_sha256 and hashlib.sha256(kept).hexdigest() != state.metrics_sha256:
            kept = whole_lines(kept)
            self.say(
                f"warning: {path} is damaged; the {kept.count(10)} lines that can be read are kept, "
                "the rest of the curves is lost; the training itself is not touched by it"
            )
            write_atomically(path, kept)
        file = path.open("r+b")
        file.truncate(len(kept))
        file.seek(len(kept))
        return file, hashlib.sha256(kept)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def say(self, line: str) -> None:
        (self.progress.console if self.progress else self.console).print(line, markup=False, soft_wrap=True)

    @contextmanager
    def stage(self, name: str, title: str, steps: int, done: int) -> Iterator[None]:
        """A stage of `steps` steps, of which `done` are behind us, with its progress line."""
        self.name, self.steps = name, steps
        self.stage_began, self.done_before = time.monotonic(), done
        self.window_began = time.monotonic()
        if not self.console.is_terminal or self.quiet:
            self.say(f"{title}: {steps} steps" + (f", resumed at {done}" if done else ""))
            yield
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            TextColumn("{task.fields[numbers]}"),
        )
        with Progress(*columns, console=self.console, refresh_per_second=4) as self.progress:
            self.task = self.progress.add_task(title, total=steps, completed=done, numbers="")
            try:
                yield
            finally:
                self.progress = None

    def step(self, step: int, images: int, values: dict[str, Any], show: tuple[str, ...]) -> None:
        """Note the values of a step that is done; `show` names those that matter to a person."""
        self.window.add(images, values)
        bad = next((n for n, v in values.items() if isinstance(v, float) and not math.isfinite(v)), None)
        if bad:
            raise DivergedError(
                f"training diverged in stage {self.name!r} at step {step}: {bad} is no longer a number; "
                "lower the learning rate and run again (the last good checkpoint is kept)"
            )
        if self.progress:
            self.progress.update(self.task, completed=step)
        if self.window.steps >= WINDOW or step == self.steps:
            self._write_line(step, show)

    def _write_line(self, step: int, show: tuple[str, ...]) -> None:
        now = time.monotonic()
        means = self.window.means()
        rate = self.window.images / max(now - self.window_began, 1e-9)
        line = {"stage": self.name, "step": step, **means, "images_per_second": round(rate, 1)}
        text = (json.dumps(line) + "\n").encode()
        with writing(self.folder):
            self.metrics.write(text)
            self.metrics.flush()
        self.digest.update(text)
        for listener in self.listeners:
            listener(line)
        numbers = "  ".join(f"{name.replace('_', ' ')} {means[name]:.4f}" for name in show)
        if self.progress:
            self.progress.update(self.task, numbers=f"{rate:,.0f} images/s  {numbers}")
        elif now - self.said_at >= PLAIN_SECONDS or step == self.steps:
            left = (now - self.stage_began) / max(step - self.done_before, 1) * (self.steps - step)
            self.say(f"  {step}/{self.steps}  {rate:,.0f} images/s  {left:.0f} s left  {numbers}")
            self.said_at = now
        self.window, self.window_began = Window(), now

    def state(self, stage: str, step: int) -> State:
        """What a checkpoint has to remember of the journal."""
        return State(
            stage,
            step,
            round(self.seconds, 3),
            self.metrics.tell(),
            self.window.stored(),
            self.digest.hexdigest(),
            hashes_of(self.folder, *(FINAL_FILES if stage == "done" else FIXED_FILES)),
        )

    def save_due(self) -> bool:
        """Whether all save now: some process was asked to stop, or by the clock of the first it is time."""
        due = distributed.first() and time.monotonic() - self.saved_at >= self.checkpoint_seconds
        decision = distributed.largest(2 if self.stop_requested else int(due))
        self.stopping = decision == 2
        return decision > 0

    def save(self, stage: str, step: int, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> None:
        """Add a checkpoint; then stop if that was asked for."""
        if distributed.first():
            checkpoint.save(self.folder, self.state(stage, step), weights, optimizer)
        self.saved()

    def saved(self) -> None:
        self.saved_at = time.monotonic()
        if self.stopping:
            distributed.wait()
            raise Interrupted(f"stopped and saved; the same command again carries on ({self.folder})")

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM saves and stops, the second stops at once."""

        def request(number: int, frame: FrameType | None) -> None:
            if self.stop_requested:
                sys.exit(128 + number)
            self.stop_requested = True
            if not self.quiet:  # past Python's own buffers, which may be in use at this very moment
                with suppress(OSError):
                    os.write(2, b"\nstopping after this step; press Ctrl-C again to stop at once\n")

        previous = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                previous[number] = signal.signal(number, request)
            except ValueError:  # not the main thread: whoever runs us decides
                break
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def close(self) -> None:
        with suppress(OSError):  # a full disk, which was reported when the line was written
            self.metrics.close()


def whole_lines(raw: bytes) -> bytes:
    """The lines that are JSON objects."""
    kept = []
    for line in raw.split(b"\n"):
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(line), dict):
                kept.append(line + b"\n")
    return b"".join(kept)
