"""What a run writes while it trains: its log, checkpoints, samples, and scalars for TensorBoard."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from capspoe import distributed
from capspoe.errors import InputError
from capspoe.run.log import TrainingLog
from capspoe.run.pictures import write_sample_grid
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.fit import Callback
from capspoe.training.prior_stage import PRIOR_IMAGES, fit_prior
from capspoe.training.stage import Stage, Step, Training

Listener = Callable[[dict[str, Any]], None]  # gets each line of metrics.jsonl


class FolderCallback(Callback):
    """Log every step, save checkpoints, and draw samples while the top layer trains."""

    def __init__(self, folder: Path, log: TrainingLog) -> None:
        self.folder = folder
        self.log = log

    def begin(self, training: Training) -> None:
        self.training = training

    @contextlib.contextmanager
    def stage(self, stage: Stage, first: int, last: int) -> Iterator[None]:
        self.previews = self._previews(stage, last)
        if last == 0:
            yield
            return
        with self.log.stage(stage.name, stage.title, last, first):
            yield

    def step(self, stage: Stage, step: Step) -> None:
        if step.number in self.previews:
            codes = self.training.codes
            some = codes[:: 1 + len(codes) // (8 * PRIOR_IMAGES)]
            fit_prior(self.training.network, some, components=1)
            self._draw()
        self.log.step(step.number, step.images, step.metrics, stage.shown)
        if self.log.save_due():
            self.log.save(stage.name, step.number, self.training.network.state_dict(), self._state(stage))

    def finished(self, stage: Stage, following: Stage | None) -> None:
        if following is None:
            self._draw()
        else:
            self.log.save(following.name, 0, self.training.network.state_dict(), self.training.state())

    def _state(self, stage: Stage) -> dict[str, Tensor]:
        return {**stage.state(), **self.training.state()}

    def _previews(self, stage: Stage, last: int) -> set[int]:
        """Steps after which samples are drawn: the first epoch of the top layer, and half of its training."""
        if not isinstance(stage, CapsuleStage) or stage.depth < len(self.training.network.layers) - 1:
            return set()
        return {stage.schedule.steps_per_epoch(self.training.count), last // 2}

    def _draw(self) -> None:
        if distributed.is_main():
            write_sample_grid(self.training.network, self.folder / "samples.png")


def tensorboard_listener(folder: Path) -> Listener:
    """Write each line of metrics.jsonl as TensorBoard scalars too."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError("--tensorboard needs its package: pip install 'capspoe[tensorboard]'") from None
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(line: dict[str, Any]) -> None:
        for name, value in line.items():
            if isinstance(value, float):
                writer.add_scalar(f"{line['stage']}/{name}", value, line["step"])
        writer.flush()

    return write
