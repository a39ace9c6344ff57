"""A run from images to a trained network: started, resumed and finished in its folder."""

import contextlib
import dataclasses
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capspoe import __version__, data, distributed
from capspoe.atomic import locked, remove_files
from capspoe.config import FREE_TO_CHANGE, Config, check, fill_auto
from capspoe.config import preset as preset_config
from capspoe.errors import InputError, RunError, damaged
from capspoe.memory import memory
from capspoe.run import checkpoint, recovery
from capspoe.run import codes as codes_file
from capspoe.run.checkpoint import AUTOENCODER, DONE, PRIOR, Saved, Stage, State
from capspoe.run.log import TrainingLog
from capspoe.run.model import CapsulePoE, find_device
from capspoe.run.pictures import write_sample_grid
from capspoe.train import optimizers, spectral, targets
from capspoe.train.fit_prior import PRIOR_IMAGES, fit_prior
from capspoe.train.loops import Step, autoencoder_steps, capsule_steps, mean_input, planned_steps

Callback = Callable[[dict[str, Any]], None]  # gets each line of metrics.jsonl
IN_MEMORY = 4 << 30  # decode images into memory up to this many bytes, and a quarter of the machine's memory
FROM_PYTHON = "images from Python"  # the value of config.data for images that were passed as an object


class Trained(NamedTuple):
    model: CapsulePoE
    seconds: float
    was_done: bool  # before this call


def train(
    images: str | os.PathLike[str] | data.MapStyle | None = None,
    out: str | os.PathLike[str] | None = None,
    preset: str = "small",
    literal: bool = False,
    config: Config | None = None,
    resume: bool = False,
    quiet: bool = False,
    callback: Callback | None = None,
    **changes: Any,
) -> CapsulePoE:
    """Train as `capspoe train` does, and return the trained network.

    Parameters
    ----------
    images : name of a data set (default: mnist), a path, or an object with len(images) and images[k], each a uint8
        array (H, W) or (H, W, C), or a tuple that begins with one
    out : run folder; by default runs/NAME. An unfinished run there with the same settings is resumed.
    preset : "small" or "paper"
    literal : exactly what the paper says
    config : all settings at once, instead of `preset` and `literal`
    resume : resume the run in `out` with its own settings
    quiet : no progress
    callback : called in process 0 with each line of metrics.jsonl, a dict with `stage`, `step` and the metrics
    **changes : single settings, such as epochs=4, seed=1
    """
    given = None if isinstance(images, (str, os.PathLike)) else images
    name = os.fspath(images) if isinstance(images, (str, os.PathLike)) else FROM_PYTHON
    if config is None:
        config = preset_config(preset, "mnist" if images is None else name, literal, changes.get("neurons"))
    elif images is not None:
        config = config.replace(data=name)
    config = config.replace(**changes)
    folder = Path(out) if out is not None else default_folder(config, preset, literal)
    return train_run(config, folder, resume, given, quiet, callback).model


def train_run(
    config: Config,
    folder: Path,
    resume: bool = False,
    given: data.MapStyle | None = None,
    quiet: bool = False,
    callback: Callback | None = None,
) -> Trained:
    """Train into a folder; see `train`."""
    config = config.replace(data=data.absolute(config.data))
    check(config)
    if config.threads:
        torch.set_num_threads(config.threads)
    with distributed.process_group(), contextlib.ExitStack() as stack:
        with distributed.fail_together():
            if resume or checkpoint.exists(folder):
                config = resumed_config(folder, config, resume)
            dataset = open_images(config, given)
        if "auto" in config.layers:
            found = distributed.broadcast_object(lambda: count_groups(dataset, config))
            config = config.replace(layers=fill_auto(config.layers, found))
        with distributed.fail_together():
            # Before anything is written: it refuses settings that do not fit.
            model = CapsulePoE(config, image_shape(config, dataset)).to(find_device(config.device))
            if distributed.is_main():
                stack.enter_context(locked(folder, wait=False))
                environment = prepare_folder(folder, model, dataset)
        there = bool(checkpoint.numbered(folder))
        saved = distributed.broadcast_object(lambda: checkpoint.newest(folder) if there else None)
        if saved:
            model.load_weights(saved.weights)
        with distributed.fail_together():
            if distributed.is_main():
                recovery.recover(folder, model, saved, environment, quiet)
        state = saved.state if saved else State()
        seconds, was_done = state.seconds, state.stage == DONE
        if not was_done:
            log = TrainingLog(folder, state, config.checkpoint_seconds, quiet)
            log.listeners += [callback] if callback and distributed.is_main() else []
            with contextlib.closing(log), log.stopping_on_signals():
                Trainer(folder, model, dataset, log, saved).run()
            seconds = log.seconds
        model.stage = DONE
        return Trained(model.eval(), seconds, was_done)


def default_folder(config: Config, preset_name: str, literal: bool) -> Path:
    parts = [Path(config.data).name or "images", preset_name, "literal" if literal else "small"]
    return Path("runs") / "-".join(part for part in parts if part != "small")


def resumed_config(folder: Path, wanted: Config, resume: bool) -> Config:
    """The stored settings of a run that is resumed; refuses to mix two different runs."""
    if checkpoint.exported(folder):
        raise RunError(f"{folder} is an exported network, which cannot be resumed; choose another --out")
    stored = checkpoint.open_run(folder).config
    stored = stored.replace(data=data.absolute(stored.data))
    named = stored.data == FROM_PYTHON or stored.data in data.CATALOGUE
    if resume and not named and not Path(stored.data).expanduser().exists():
        stored = stored.replace(data=wanted.data)  # the images moved; their fingerprint is compared later
    stored = stored.replace(**{name: getattr(wanted, name) for name in FREE_TO_CHANGE})
    wanted = wanted.replace(layers=stored.layers) if "auto" in wanted.layers else wanted  # the number found then
    ours, theirs = dataclasses.asdict(wanted), dataclasses.asdict(stored)
    different = [f"{name} {theirs[name]!r} -> {ours[name]!r}" for name in ours if theirs[name] != ours[name]]
    if different and not resume:
        advice = "choose another --out, or --resume to continue with its own"
        raise RunError(f"{folder} holds a run with other settings ({', '.join(different)}); {advice}")
    return stored


def count_groups(dataset: data.Dataset, config: Config) -> int:
    few = dataset.spread(spectral.COUNT_IMAGES)
    return spectral.count_groups(few.images(data.workers_for(few)).pixels, config.neighbours, config.seed)


def image_shape(config: Config, dataset: data.Dataset) -> tuple[int, int, int]:
    """(height, width, colours) of the network's input, after cropping."""
    height, width, colours = dataset.shape
    crop = config.crop or max(height, width)
    if crop > max(height, width):
        raise InputError(f"a crop of {crop} is larger than the images, which are {height}x{width}")
    return min(crop, height), min(crop, width), colours


def open_images(config: Config, given: data.MapStyle | None = None) -> data.Dataset:
    """The training images, decoded into memory if they fit."""
    c, colour = config, None if config.colour == "keep" else config.colour
    dataset: data.Dataset
    if isinstance(given, data.Dataset):
        dataset = given
    elif given is not None:
        dataset = data.SequenceDataset(given, data.Prepare.of(c.size, None, colour))
    elif c.data == FROM_PYTHON:
        raise InputError("this run was trained on images from Python; pass them to capspoe.train again")
    else:
        dataset = data.open_dataset(c.data, "train", size=c.size, colour=colour, skip_bad=c.skip_bad)
    if config.limit is not None:
        dataset = dataset.first(config.limit)
    room = min(IN_MEMORY, memory() // 4) // distributed.local_world_size()
    return dataset.in_memory(data.workers_for(dataset)) if dataset.nbytes <= room else dataset


class Trainer:
    """The stages that an unfinished run still has to do, with checkpoints in between."""

    def __init__(
        self, folder: Path, model: CapsulePoE, dataset: data.Dataset, log: TrainingLog, saved: Saved | None
    ) -> None:
        self.folder, self.model, self.dataset, self.log = folder, model, dataset, log
        self.stage, self.step = (saved.state.stage, saved.state.step) if saved else (AUTOENCODER, 0)
        self.optimizer_state = saved.optimizer if saved else {}

    def run(self) -> None:
        with distributed.fail_together():
            if self.model.config.tensorboard and distributed.is_main():
                self.log.listeners.append(tensorboard_listener(self.folder))
        if self.stage == AUTOENCODER:
            self.autoencoder()
            self.next_stage()
        codes = codes_file.codes_in_folder(self.model, self.dataset, self.folder, self.log)
        while self.stage != PRIOR:
            self.capsules(codes)
            self.next_stage()
        self.log.info("fitting the prior of every capsule")
        self.draw(codes)
        del codes
        if distributed.is_main():
            self.log.save(DONE, 0, self.model.state_dict(), {})
            remove_files(self.folder, *codes_file.FILES)

    def next_stage(self) -> None:
        depth = 0 if self.stage.depth is None else self.stage.depth + 1
        self.stage, self.step = Stage.capsules(depth) if depth < len(self.model.layers) else PRIOR, 0
        self.optimizer_state = {}
        self.log.save(self.stage, 0, self.model.state_dict(), {})

    def autoencoder(self) -> None:
        model, optimizer = self.model, optimizers.autoencoder_optimizer(self.model)
        steps = self.plan(model.config.autoencoder_epochs)
        loop = autoencoder_steps(model, self.dataset, optimizer, self.step, steps)
        self.follow(loop, optimizer, steps, "1 autoencoder", ("loss",))

    def capsules(self, codes: np.ndarray) -> None:
        model, depth = self.model, self.stage.depth
        if depth is None or depth >= len(model.layers):
            raise damaged(f"the stage {str(self.stage)!r} does not fit the settings")
        layer = model.stack[depth]
        found = self.gate_targets(codes) if layer is model.top else None
        if self.step == 0:
            means = targets.group_means(found, codes, model) if found else None
            layer.start_from(mean_input(model, depth, codes), means)
        optimizer, steps = optimizers.capsule_optimizer(layer, model.config), self.plan(model.config.epochs)
        title = "2 capsules" if len(model.layers) == 1 else f"2 capsules, layer {depth + 1}"
        preview = {-(-len(codes) // model.config.batch_size), steps // 2} if layer is model.top else {}

        def loop() -> Iterator[Step]:
            for step in capsule_steps(model, depth, codes, optimizer, self.step, steps, found):
                if step.number in preview:
                    self.draw(codes[:: 1 + len(codes) // (8 * PRIOR_IMAGES)], components=1)
                yield step

        extra = {"gate_targets": found.capsule} if found else {}
        self.follow(loop(), optimizer, steps, title, ("reconstruction", "confidence"), extra)

    def draw(self, codes: np.ndarray, components: int | None = None) -> None:
        """Fit the prior and draw samples.png."""
        fit_prior(self.model, codes, components)
        if distributed.is_main():
            write_sample_grid(self.model, self.folder / "samples.png")

    def plan(self, epochs: int) -> int:
        """The number of steps of a stage; says so if it has extra epochs."""
        config, count = self.model.config, len(self.dataset)
        steps = planned_steps(epochs, count, config)
        actual = steps // -(-count // config.batch_size)
        if actual > epochs:
            self.log.info(f"{actual} epochs instead of {epochs}, to reach --min-steps {config.min_steps}")
        return steps

    def follow(
        self,
        loop: Iterator[Step],
        optimizer: torch.optim.Optimizer,
        steps: int,
        title: str,
        show: tuple[str, ...],
        extra: dict[str, Tensor] | None = None,
    ) -> None:
        """Run a loop to its end: log every step, save when it is time, with `extra` tensors."""
        distributed.broadcast(*self.model.state_dict().values())
        optimizers.restore_optimizer(optimizer, self.optimizer_state)
        with self.log.stage(self.stage, title, steps, self.step):
            for step in loop:
                self.log.step(step.number, step.images, step.metrics, show)
                if self.log.save_due():
                    tensors = {**optimizers.optimizer_tensors(optimizer), **(extra or {})}
                    self.log.save(self.stage, step.number, self.model.state_dict(), tensors)

    def gate_targets(self, codes: np.ndarray) -> targets.GateTargets | None:
        """The gate's targets, from the checkpoint or found now; None if the gate anneals."""
        model, log = self.model, self.log
        if not targets.wanted(model):
            return None
        groups = self.optimizer_state.pop("gate_targets", None)
        if groups is None:
            log.info("clustering the codes for the gate's targets")
            groups = distributed.broadcast_object(lambda: targets.find_groups(model, codes))
        if groups is None:
            log.info("too few different images for spectral clustering: the gate anneals instead")
            return None
        return targets.GateTargets.of(groups, model, len(codes))


def prepare_folder(folder: Path, model: CapsulePoE, dataset: data.Dataset) -> dict[str, Any]:
    """Write the settings unless they are there, remove temporary files, and describe the environment."""
    fingerprint = dataset.fingerprint()
    if checkpoint.exists(folder):
        recovery.check_same_images(folder, fingerprint)
    else:
        checkpoint.create(folder, model.config, model.image)
    checkpoint.clean(folder)
    return {
        "capspoe": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": distributed.world_size(),
        "images": len(dataset),
        "images_sha256": fingerprint,
        "sample_sha256": dataset.sample_fingerprint(),
        "seed": model.config.seed,
    }


def tensorboard_listener(folder: Path) -> Callback:
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
