"""Train a network: run its stages one after another, and call the callbacks.

>>> model = capspoe.CapsulePoE.build(capspoe.Config(layers="12x16"), image=(28, 28, 1))
>>> capspoe.fit(model, images, epochs=3)
>>> model.sample(10).images
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from capspoe import distributed
from capspoe.config import OF_THE_NETWORK, Config, check
from capspoe.data import ArrayDataset, Dataset
from capspoe.data.given import FROM_PYTHON
from capspoe.errors import InputError, damaged
from capspoe.model.network import Network
from capspoe.threads import one_thread_if
from capspoe.training.build import build_stages
from capspoe.training.codec_stage import CodecStage
from capspoe.training.codes import codes_in_memory
from capspoe.training.recognition import RecognitionStage
from capspoe.training.stage import Stage, Step, Training

SMALL = 50_000  # weights of a network that trains with one thread; those of the smallest preset are ten times as many


class Callback:
    """Called during training. A subclass logs, saves or draws; it overrides the methods it needs."""

    def begin(self, training: Training) -> None:
        """Training begins."""

    def stage(self, stage: Stage, first: int, last: int) -> AbstractContextManager[Any]:
        """Return a context for the steps of a stage, which continues from step `first`."""
        return nullcontext()

    def step(self, stage: Stage, step: Step) -> None:
        """A step is finished."""

    def finished(self, stage: Stage, following: Stage | None) -> None:
        """A stage is finished; `following` is the next one."""


@dataclass
class Progress:
    """How far training got: the stage, its finished steps, and the state that it saved."""

    stage: str
    step: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)


def fit(
    network: Network,
    images: Any = None,
    stages: Sequence[Stage] | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    codes: np.ndarray | None = None,
    **settings: Any,
) -> None:
    """Train a network on images in memory.

    Parameters
    ----------
    network : the network, which is changed
    images : a `capspoe.data.Dataset`, or an array or tensor (n, H, W), (n, H, W, C) or (n, C, H, W): uint8, or float
        in [0, 1]
    stages : the stages of training; by default those that the settings ask for
    callbacks : objects that log, save or draw during training
    codes : (n, I, M) in [0, 1], the codes of the images; then the codec is not trained. Without images there is no
        recognition network either, and the neighbour graph compares the codes
    **settings : settings of `capspoe train` about training, such as epochs=3, learning_rate=1e-3, seed=1; the others
        are those that the network was built from
    """
    fixed = [name for name in settings if name in OF_THE_NETWORK]
    if fixed:
        raise InputError(f"{fixed[0]} is a setting of the network, which is built already")
    if stages is None:
        config = (network.built_from or Config()).replace(**settings)
        check(config)
        stages = build_stages(config, network)
        network.built_from = network.built_from and config
    elif settings:
        raise InputError(f"give stages or settings, not both: {min(settings)!r} has no effect on stages")
    dataset = None if images is None else as_dataset(images, network)
    if dataset is not None and dataset is not images and network.built_from is not None:
        # It does not learn from the data set that its settings name.
        network.built_from = network.built_from.replace(data=FROM_PYTHON)
    if codes is not None:
        given = codes
        unneeded: tuple[type[Stage], ...] = (CodecStage,)
        if dataset is None:
            unneeded += (RecognitionStage,)
        stages = [stage for stage in stages if not isinstance(stage, unneeded)]
        training = Training(network, dataset, lambda: given)
    elif dataset is not None:
        pixels = dataset
        training = Training(network, dataset, lambda: codes_in_memory(network, pixels.images().pixels))
    else:
        raise InputError("give images, or codes")
    network.train()
    run_stages(training, stages, callbacks)
    network.eval()


def run_stages(
    training: Training, stages: Sequence[Stage], callbacks: Sequence[Callback] = (), start: Progress | None = None
) -> None:
    """Run the stages, from the first one or from where training stopped.

    A small network trains with one thread, unless its settings name a number.
    """
    network = training.network
    weights = sum(parameter.numel() for parameter in network.parameters())
    decided = network.built_from is not None and network.built_from.threads is not None
    with one_thread_if(weights < SMALL and not decided):
        run_in_turn(training, stages, callbacks, start or Progress(stages[0].name))


def run_in_turn(training: Training, stages: Sequence[Stage], callbacks: Sequence[Callback], start: Progress) -> None:
    network = training.network
    names = [stage.name for stage in stages]
    if start.stage not in names:
        raise damaged(f"the stage {start.stage!r} does not fit the settings")
    state = training.restore(start.state)
    for callback in callbacks:
        callback.begin(training)
    for position in range(names.index(start.stage), len(stages)):
        stage = stages[position]
        resumed = stage.name == start.stage
        first = start.step if resumed else 0
        last = stage.steps(training.count)
        stage.begin(training, first, state if resumed else {})
        distributed.broadcast(*network.state_dict().values())
        with all_of(callback.stage(stage, first, last) for callback in callbacks):
            for step in stage.run(training, first, last):
                for callback in callbacks:
                    callback.step(stage, step)
        following = stages[position + 1] if position + 1 < len(stages) else None
        for callback in callbacks:
            callback.finished(stage, following)


@contextmanager
def all_of(contexts: Iterator[AbstractContextManager[Any]]) -> Iterator[None]:
    """Enter several context managers."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


def as_dataset(images: Any, network: Network) -> Dataset:
    """Images in memory as a data set of the network's shape."""
    if isinstance(images, Dataset):
        return images
    if isinstance(images, Tensor):
        images = images.detach().cpu().numpy()
    array = np.asarray(images)
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and array.min() >= 0 and array.max() <= 1):
            raise InputError("float images must have values in [0, 1], and no NaN")
        array = np.rint(255 * array).astype(np.uint8)
    if array.dtype != np.uint8:
        raise InputError(f"images must be uint8 or float, not {array.dtype}")
    height, width, colours = network.image
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[1:] == (colours, height, width) and array.shape[1:] != network.image:
        array = array.transpose(0, 2, 3, 1)
    fits = array.ndim == 4 and len(array) and (array.shape[1:] == network.image or network.crop is not None)
    if not fits:
        raise InputError(f"images must have shape (n, {height}, {width}, {colours}), not {np.shape(images)}")
    return ArrayDataset(np.ascontiguousarray(array))
