"""A stage of training, and what the stages of one training share.

A stage is a generator of steps that knows nothing of files. It can start at any step, and then does exactly what an
uninterrupted one does. Its caller logs, saves and draws (`fit.py`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from capspoe.data import Dataset
from capspoe.model.network import Network


class Step(NamedTuple):
    """A finished step."""

    number: int  # steps finished so far
    images: int  # in its batch
    metrics: dict[str, Any]


class Training:
    """The network, the images, and their codes, which are computed when the first stage asks for them.

    Parameters
    ----------
    network : the network that is trained
    images : the images; None if there are only codes
    make_codes : computes the codes (n, I, M) of all images
    info : gets messages for people

    Attributes
    ----------
    groups : (n,), the group of each image, once the gate's targets have been found
    """

    def __init__(
        self,
        network: Network,
        images: Dataset | None,
        make_codes: Callable[[], np.ndarray],
        info: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.network = network
        self.images = images
        self.make_codes = make_codes
        self.info = info
        self.groups: Tensor | None = None

    @cached_property
    def codes(self) -> np.ndarray:
        return self.make_codes()

    @property
    def count(self) -> int:
        """Number of images."""
        return len(self.codes) if self.images is None else len(self.images)

    def state(self) -> dict[str, Tensor]:
        """What all later stages need in a checkpoint."""
        return {} if self.groups is None else {"gate_targets": self.groups}

    def restore(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Take one's own part of a checkpoint's state; returns the rest, which is the stage's."""
        rest = dict(state)
        self.groups = rest.pop("gate_targets", None)
        return rest


class Stage(ABC):
    """A part of training. Checkpoints and metrics show its `name`, the progress bar its `title`."""

    name: str
    title: str
    shown: tuple[str, ...] = ()  # metrics on the progress bar

    @abstractmethod
    def steps(self, count: int) -> int:
        """Number of steps for `count` images; 0 for a stage without steps."""

    @abstractmethod
    def begin(self, training: Training, first: int, state: dict[str, Tensor]) -> None:
        """Prepare to continue from step `first` with the `state` of a checkpoint; 0 and empty at the start."""

    @abstractmethod
    def run(self, training: Training, first: int, last: int) -> Iterator[Step]:
        """Do the steps from `first` to `last`."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint needs besides the weights of the network."""
        return {}


@dataclass(frozen=True)
class Schedule:
    """How long a stage takes, and which images each of its steps sees.

    epochs       passes over all images
    batch_size   images in a step
    min_steps    small data sets get extra epochs until there are this many steps
    seed         seed of the order of the images
    """

    epochs: int
    batch_size: int = 128
    min_steps: int = 0
    seed: int = 0

    def steps(self, count: int) -> int:
        """Number of steps for `count` images."""
        per_epoch = self.steps_per_epoch(count)
        return per_epoch * max(self.epochs, -(-self.min_steps // per_epoch))

    def steps_per_epoch(self, count: int) -> int:
        return -(-count // self.batch_size)

    def extra_epochs(self, count: int) -> str | None:
        """A message for people if a small data set gets extra epochs."""
        actual = self.steps(count) // self.steps_per_epoch(count)
        if actual <= self.epochs:
            return None
        return f"{actual} epochs instead of {self.epochs}, to reach --min-steps {self.min_steps}"

    def batches(self, count: int, stream: int, first: int, last: int) -> Iterator[tuple[int, np.ndarray]]:
        """(step, indices of images) for the steps from `first` to `last`; every epoch has its own permutation."""
        per_epoch = self.steps_per_epoch(count)
        step = first
        while step < last:
            order = np.random.default_rng([self.seed % 2**64, stream, step // per_epoch]).permutation(count)
            for start in range((step % per_epoch) * self.batch_size, count, self.batch_size):
                if step == last:
                    return
                yield step, order[start : start + self.batch_size]
                step += 1
