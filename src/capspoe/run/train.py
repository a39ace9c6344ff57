"""A run from images to a trained network: started, resumed and finished in its folder."""

import contextlib
import dataclasses
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capspoe import __version__, data, distributed, kernels
from capspoe.atomic import locked, remove_files
from capspoe.config import FREE_TO_CHANGE, Config, check, counts_groups, fill_auto
from capspoe.config import preset as preset_config
from capspoe.data.given import FROM_PYTHON
from capspoe.errors import InputError, RunError
from capspoe.memory import memory
from capspoe.run import checkpoint, recovery
from capspoe.run import codes as codes_file
from capspoe.run.checkpoint import DONE, Saved, State
from capspoe.run.folder_callback import FolderCallback, Listener, tensorboard_listener
from capspoe.run.log import TrainingLog
from capspoe.run.model import CapsulePoE, find_device
from capspoe.threads import use_threads
from capspoe.training import spectral
from capspoe.training.build import build_stages
from capspoe.training.fit import Progress, run_stages
from capspoe.training.stage import Stage, Training

IN_MEMORY = 4 << 30  # decode images into memory up to this many bytes, and a quarter of the machine's memory


class Trained(NamedTuple):
    model: CapsulePoE
    seconds: float
    was_done: bool  # before this call


def train(
    images: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | data.MapStyle | None = None,
    out: str | os.PathLike[str] | None = None,
    preset: str = "small",
    literal: bool = False,
    config: Config | None = None,
    resume: bool = False,
    quiet: bool = False,
    callback: Listener | None = None,
    **changes: Any,
) -> CapsulePoE:
    """Train as `capspoe train` does, and return the trained network.

    Parameters
    ----------
    images : name of a data set (default: mnist), a path or a list of paths, an array or tensor (n, H, W),
        (n, H, W, C) or (n, C, H, W), or an object with len(images) and images[k], such as a PyTorch data set: each an
        image, or a tuple that begins with one. Pixels are uint8, or float in [0, 1].
    out : run folder; by default runs/NAME, for images from Python runs/images-HASH. An unfinished run there with the
        same settings is resumed.
    preset : "small", "paper", or "photos"
    literal : exactly what the paper says
    config : all settings at once, instead of `preset` and `literal`
    resume : resume the run in `out` with its own settings
    quiet : no progress
    callback : called in process 0 with each line of metrics.jsonl, a dict with `stage`, `step` and the metrics
    **changes : single settings, such as epochs=4, seed=1
    """
    given = None
    if isinstance(images, (str, os.PathLike)):
        name = os.fspath(images)
    elif isinstance(images, (list, tuple)) and all(isinstance(path, (str, os.PathLike)) for path in images):
        name = data.join_names([os.fspath(path) for path in images])
    else:
        name = FROM_PYTHON
        given = images
    if config is None:
        config = preset_config(preset, "mnist" if images is None else name, literal, changes.get("neurons"))
    elif images is not None:
        config = config.replace(data=name)
    config = config.replace(**changes)
    if isinstance(given, Tensor):
        given = given.detach().cpu().numpy()
    if out is not None:
        folder = Path(out)
    elif given is not None:
        folder = Path("runs") / f"images-{given_images(config, given).sample_fingerprint()[:8]}"
    else:
        folder = default_folder(config, preset, literal)
    return train_run(config, folder, resume, given, quiet, callback).model


def train_run(
    config: Config,
    folder: Path,
    resume: bool = False,
    given: data.MapStyle | data.Dataset | None = None,
    quiet: bool = False,
    callback: Listener | None = None,
    groups: np.ndarray | None = None,
) -> Trained:
    """Train into a folder; see `train`. The gate's targets are `groups` (n,), if they are given."""
    config = config.replace(data=data.absolute(config.data))
    check(config)
    if config.threads:
        use_threads(config.threads)
    device = find_device(config.device)
    if device.type == "cpu":
        kernels.compile_ahead()  # while the images are read and the autoencoder trains
    with distributed.process_group():
        config, dataset = open_settings_and_images(config, folder, resume, given)
        with distributed.fail_together():
            # Before anything is written: these refuse settings that do not fit.
            model = CapsulePoE.build(config, image_shape(config, dataset)).to(device)
            stages = build_stages(config, model)
        with locked_folder(folder, model, dataset) as environment:
            saved = restore(folder, model, environment, quiet)
            if saved is not None and saved.state.stage == DONE:
                return finished(model, saved.state.seconds, was_done=True)
            log = TrainingLog(folder, saved.state if saved else State(), config.checkpoint_seconds, quiet)
            if callback and distributed.is_main():
                log.listeners.append(callback)
            if dataset.understood:
                log.info(dataset.understood)
            with contextlib.closing(log), log.stopping_on_signals():
                train_stages(folder, model, dataset, stages, log, saved, groups)
            return finished(model, log.seconds, was_done=False)


def finished(model: CapsulePoE, seconds: float, was_done: bool) -> Trained:
    model.stage = DONE
    return Trained(model.eval(), seconds, was_done)


def open_settings_and_images(
    config: Config, folder: Path, resume: bool, given: data.MapStyle | data.Dataset | None
) -> tuple[Config, data.Dataset]:
    """The settings of the run (those in the folder if it is resumed) and its images. Counts groups on request."""
    with distributed.fail_together():
        if resume or checkpoint.exists(folder):
            config = resumed_config(folder, config, resume)
        dataset = open_images(config, given)
    if counts_groups(config.layers):
        groups = distributed.broadcast_object(lambda: count_groups(dataset, config))
        config = config.replace(layers=fill_auto(config.layers, groups))
    return config, dataset


@contextlib.contextmanager
def locked_folder(folder: Path, model: CapsulePoE, dataset: data.Dataset) -> Iterator[dict[str, Any]]:
    """Lock the folder and prepare it; yields a description of the environment."""
    environment: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        with distributed.fail_together():
            if distributed.is_main():
                stack.enter_context(locked(folder, wait=False))
                environment = prepare_folder(folder, model, dataset)
        yield environment


def restore(folder: Path, model: CapsulePoE, environment: dict[str, Any], quiet: bool) -> Saved | None:
    """Load the newest intact checkpoint, if there is one, and repair what is damaged in the folder."""
    there = bool(checkpoint.numbered(folder))
    saved = distributed.broadcast_object(lambda: checkpoint.newest(folder) if there else None)
    if saved:
        model.load_weights(saved.weights)
    with distributed.fail_together():
        if distributed.is_main():
            recovery.recover(folder, model, saved, environment, quiet)
    return saved


def train_stages(
    folder: Path,
    model: CapsulePoE,
    dataset: data.Dataset,
    stages: list[Stage],
    log: TrainingLog,
    saved: Saved | None,
    groups: np.ndarray | None = None,
) -> None:
    """Do the rest of the training, with checkpoints in between."""
    with distributed.fail_together():
        if model.config.tensorboard and distributed.is_main():
            log.listeners.append(tensorboard_listener(folder))
    start = None
    if saved is not None:
        start = Progress(saved.state.stage, saved.state.step, saved.optimizer)
    training = Training(
        model, dataset, lambda: codes_file.codes_in_folder(model, dataset, folder, log), info=log.info
    )
    if groups is not None:
        training.groups = torch.from_numpy(groups).to(torch.int32)
    run_stages(training, stages, [FolderCallback(folder, log)], start)
    state = training.state()
    del training  # closes the codes
    if distributed.is_main():
        log.save(DONE, 0, model.state_dict(), state)
        remove_files(folder, *codes_file.FILES)


def default_folder(config: Config, preset_name: str, literal: bool) -> Path:
    names = data.names_in(data.absolute(config.data))
    if names == [data.STANDARD_INPUT]:
        name = "standard-input"
    elif len(names) > 1:
        name = Path(os.path.commonpath(names)).name
    else:
        name = Path(config.data).name
    parts = [name or "images", preset_name, "literal" if literal else "small"]
    return Path("runs") / "-".join(part for part in parts if part != "small")


def resumed_config(folder: Path, wanted: Config, resume: bool) -> Config:
    """The stored settings of a run that is resumed; refuses to mix two different runs."""
    if checkpoint.exported(folder):
        raise RunError(f"{folder} is an exported network, which cannot be resumed; choose another --out")
    stored = checkpoint.open_run(folder).config
    stored = stored.replace(data=data.absolute(stored.data))
    if resume and not images_exist(stored.data):
        stored = stored.replace(data=wanted.data)  # the images moved; their fingerprint is compared later
    stored = stored.replace(**{name: getattr(wanted, name) for name in FREE_TO_CHANGE})
    wanted = wanted.replace(layers=stored.layers) if counts_groups(wanted.layers) else wanted  # the number found then
    ours, theirs = dataclasses.asdict(wanted), dataclasses.asdict(stored)
    different = [f"{name} {theirs[name]!r} -> {ours[name]!r}" for name in ours if theirs[name] != ours[name]]
    if different and not resume:
        advice = "choose another --out, or --resume to continue with its own"
        raise RunError(f"{folder} holds a run with other settings ({', '.join(different)}); {advice}")
    return stored


def images_exist(names: str) -> bool:
    """Whether the images of a run are where they were, as far as that can be told from their names."""
    if names in (FROM_PYTHON, data.STANDARD_INPUT):
        return True
    return all(name in data.CATALOGUE or Path(name).expanduser().exists() for name in data.names_in(names))


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


def open_images(config: Config, given: data.MapStyle | data.Dataset | None = None) -> data.Dataset:
    """The training images, decoded into memory if they fit."""
    dataset: data.Dataset
    if given is not None:
        dataset = given_images(config, given)
    elif config.data == FROM_PYTHON:
        raise InputError("this run was trained on images from Python; pass them to capspoe.train again")
    else:
        colour = None if config.colour == "keep" else config.colour
        dataset = data.open_dataset(config.data, "train", size=config.size, colour=colour, skip_bad=config.skip_bad)
        dataset.skippable = True
    if config.limit is not None:
        dataset = dataset.first(config.limit)
    room = min(IN_MEMORY, memory() // 4) // distributed.local_world_size()
    return dataset.in_memory(data.workers_for(dataset)) if dataset.nbytes <= room else dataset


def given_images(config: Config, given: data.MapStyle | data.Dataset) -> data.Dataset:
    """Images from Python: an array, or any object with a length and items."""
    prepare = data.Prepare.of(config.size, None, None if config.colour == "keep" else config.colour)
    if isinstance(given, data.Dataset):
        return given
    if isinstance(given, np.ndarray):
        return data.from_array(given, prepare)
    return data.SequenceDataset(given, prepare)


def prepare_folder(folder: Path, model: CapsulePoE, dataset: data.Dataset) -> dict[str, Any]:
    """Write the settings if they are missing, remove temporary files, and describe the environment."""
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
