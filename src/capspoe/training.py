"""A run from images to a trained network: started, resumed, finished, in its folder."""

import contextlib
import dataclasses
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from capspoe import __version__, checkpoint, codes, data, distributed, guide, hub, mending
from capspoe.checkpoint import State
from capspoe.config import Config, check
from capspoe.config import preset as settings_of_preset
from capspoe.data.sequence import Sequence
from capspoe.durable import writing
from capspoe.errors import InputError, RunError
from capspoe.figures import write_grid
from capspoe.journal import Journal
from capspoe.memory import memory
from capspoe.model import CapsulePoE
from capspoe.stages import as_input, cropped, decoders, fit_prior, train_autoencoder, train_capsules

IN_MEMORY = 4 << 30  # decoded images up to so many bytes are kept in memory, and up to a quarter of it
GIVEN = "images from Python"  # what config.json has in the place of a data set's name
FREE_TO_CHANGE = ("threads", "checkpoint_seconds", "tensorboard")  # settings that do not change the result


def train(
    images: str | os.PathLike[str] | Sequence | None = None,
    out: str | os.PathLike[str] | None = None,
    preset: str = "small",
    literal: bool = False,
    config: Config | None = None,
    resume: bool = False,
    quiet: bool = False,
    **changes: Any,
) -> CapsulePoE:
    """Train on a data set (mnist unless said) or a path, as `capspoe train` does, and give the trained network.

    `images` may also be an object with a length that gives an image for a number, always the same one: uint8
    (H, W) or (H, W, C), or a pair that begins with it. Images are asked for when they are needed.

    `changes` are settings by name (epochs=4, seed=1), from those of `preset` and `literal` or from a whole `config`.
    An unfinished run in `out` with the same settings is carried on; `resume` carries it on with the settings that it
    has.
    """
    given = None if isinstance(images, (str, os.PathLike)) else images
    name = os.fspath(images) if isinstance(images, (str, os.PathLike)) else GIVEN
    if config is None:
        data_set = "mnist" if images is None else name
        config = settings_of_preset(preset, data_set, literal, changes.get("neurons"))
    elif images is not None:
        config = config.replace(data=name)
    config = config.replace(**changes)
    check(config)
    folder = Path(out) if out is not None else default_folder(config, preset, literal)
    if config.training.threads:
        torch.set_num_threads(config.training.threads)
    with distributed.joined(), contextlib.ExitStack() as held:
        with distributed.together():
            if resume or checkpoint.exists(folder):
                config = settings_to_resume(folder, config, resume)
            source = open_images(config, given)
            model = CapsulePoE(config, image_shape(config, source))  # refuses what does not fit
            if distributed.first():
                with writing(folder):
                    folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(checkpoint.locked(folder))
        return _train_locked(folder, model, source, quiet)


def command(config: Config, folder: Path, resume: bool) -> None:
    """What `capspoe train` does: train, then say where to look."""
    done_before = finished(folder)
    with distributed.joined():
        model = train(out=folder, config=config, resume=resume)
        if not distributed.first():
            return
    state = checkpoint.newest(folder).state
    print(f"{folder} was finished already" if done_before else f"trained in {state.seconds / 60:.1f} minutes")
    rows, columns = 4, model.top.upper[0]
    print(f"  samples   {folder / 'samples.png'}  ({rows} images of each of the {columns} capsules)")
    print(f"  metrics   {folder / 'metrics.jsonl'}")
    print(f"  more      capspoe sample {folder} --count 100 --out samples.npz")


def finished(folder: Path) -> bool:
    """Whether the run in the folder came to its end."""
    return bool(checkpoint.numbered(folder)) and checkpoint.newest(folder).state.stage == "done"


def default_folder(config: Config, preset_name: str, literal: bool) -> Path:
    name = Path(config.data.data).name or "images"
    parts = [name, *([preset_name] if preset_name != "small" else []), *(["literal"] if literal else [])]
    return Path("runs") / "-".join(parts)


def settings_to_resume(folder: Path, wanted: Config, resume: bool) -> Config:
    """The stored settings of a run that is to be carried on; refuse to mix two different runs."""
    if hub.exported(folder):
        raise RunError(
            f"{folder} is an exported network, without what training needs to carry on; choose another --out"
        )
    stored = checkpoint.open_run(folder).config
    named = stored.data.data in {GIVEN, *(entry.name for entry in data.catalog())}
    moved = not named and not Path(stored.data.data).expanduser().exists()
    if resume and moved:  # a run copied to where its images have another path; they are compared later on
        stored = stored.replace(data=wanted.data.data)
    free = {name: getattr(wanted.training, name) for name in FREE_TO_CHANGE}
    if resume:
        return stored.replace(**free)
    ours, theirs = dataclasses.asdict(wanted), dataclasses.asdict(stored.replace(**free))
    different = [
        f"{name} {theirs[part][name]!r} -> {value!r}"
        for part, values in ours.items()
        for name, value in values.items()
        if theirs[part][name] != value
    ]
    if different:
        raise RunError(
            f"{folder} holds a run with other settings ({', '.join(different)}); "
            "choose another --out, or --resume to carry on with its own"
        )
    return stored.replace(**free)


def image_shape(config: Config, source: data.Source) -> tuple[int, int, int]:
    """What the network sees of an image: height, width and colours after the crop."""
    height, width, colours = source.shape
    crop = config.data.crop
    if crop is not None and crop > max(height, width):
        raise InputError(f"a crop of {crop} is larger than the images, which are {height}x{width}")
    return min(crop or height, height), min(crop or width, width), colours


def _train_locked(folder: Path, model: CapsulePoE, source: data.Source, quiet: bool) -> CapsulePoE:
    config = model.config
    with distributed.together():
        environment = prepare_folder(folder, config, model.image, source) if distributed.first() else {}
    saved = distributed.of_first(lambda: checkpoint.newest(folder) if checkpoint.numbered(folder) else None)
    state, optimizer = State("autoencoder", 0), {}
    if saved:
        model.load_weights(saved.weights)
        state, optimizer = saved.state, saved.optimizer
    with distributed.together():
        if distributed.first():
            mending.mend(folder, config, saved, environment, mending.teller(quiet))
        if saved and state.stage == "done":
            if distributed.first():
                mending.mend_finished(folder, model, saved, mending.teller(quiet))
            return model.eval()
    journal = Journal(folder, state, config.training.checkpoint_seconds, quiet)
    try:
        with distributed.together():
            if config.training.tensorboard and distributed.first():
                journal.listeners.append(tensorboard_listener(folder))
        with journal.stopping_on_signals():
            _to_the_end(folder, model, source, journal, state, optimizer)
    finally:
        journal.close()
    return model.eval()


def _to_the_end(
    folder: Path,
    model: CapsulePoE,
    source: data.Source,
    journal: Journal,
    state: State,
    optimizer: dict[str, Tensor],
) -> None:
    """The stages that an unfinished run still has before it, with a checkpoint after each."""
    if state.stage == "autoencoder":
        train_autoencoder(model, source, folder, journal, state, optimizer)
        state, optimizer = State("capsules-0", 0), {}
        journal.save("capsules-0", 0, model.state_dict(), {})
    code = prepared_codes(model, source, folder, journal)
    while state.stage.startswith("capsules-"):
        depth = int(state.stage.removeprefix("capsules-"))
        if depth >= len(model.layers):
            raise checkpoint.damaged(f"the stage {state.stage!r} does not fit the settings")
        train_capsules(model, depth, code, folder, journal, state, optimizer)
        following = f"capsules-{depth + 1}" if depth + 1 < len(model.layers) else "prior"
        state, optimizer = State(following, 0), {}
        journal.save(following, 0, model.state_dict(), {})
    journal.say("fitting the prior of every capsule")
    fit_prior(model, code)
    del code
    if distributed.first():
        write_grid(model, folder / "samples.png")
        journal.save("done", 0, model.state_dict(), {})
        codes.remove(folder)
        guide.remove(folder)


def prepare_folder(
    folder: Path, config: Config, image: tuple[int, int, int], source: data.Source
) -> dict[str, Any]:
    """The settings of the run, unless they stand there already; no litter; the circumstances, to be written."""
    environment = {
        **describe_machine(),
        "images": len(source),
        "images_sha256": mending.fingerprint(source, config.data.data),
        "seed": config.training.seed,
    }
    if checkpoint.exists(folder):
        mending.check_images(folder, environment["images_sha256"])
    else:
        checkpoint.create(folder, config, image)
    checkpoint.clean(folder)
    return environment


def open_images(config: Config, given: Sequence | None = None) -> data.Source:
    """The training images, decoded into memory when they fit."""
    c = config.data
    colour = None if c.colour == "keep" else c.colour
    source: data.Source
    if isinstance(given, data.Source):
        source = given
    elif given is not None:
        source = data.SequenceSource(given, data.Prepare.of(c.size, None, colour))
    elif c.data == GIVEN:
        raise InputError("this run was trained on images from Python; give them to capspoe.train again")
    else:
        source = data.open_source(c.data, "train", size=c.size, colour=colour, skip_bad=c.skip_bad)
    if c.limit is not None:
        source = source.first(c.limit)
    room = min(IN_MEMORY, memory() // 4) // distributed.on_this_machine()
    return source.in_memory(decoders(source)) if source.nbytes <= room else source


def prepared_codes(model: CapsulePoE, source: data.Source, folder: Path, journal: Journal) -> np.ndarray:
    """The codes of all images, computed once; what is missing or damaged is computed again."""

    def encode(rows: np.ndarray) -> Iterator[np.ndarray]:
        with torch.no_grad():
            for pixels in source.batches(codes.BATCH, rows, decoders(source)):
                x = as_input(cropped(pixels, model.config.data.crop, None), model.device)
                yield model.autoencoder.encode(x).cpu().numpy()

    return codes.prepared(folder, (len(source), *model.autoencoder.capsules), encode, journal)


def describe_machine() -> dict[str, Any]:
    """Versions and hardware, for whoever wants to repeat the run."""
    return {
        "capspoe": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": distributed.world(),
    }


def tensorboard_listener(folder: Path) -> Callable[[dict[str, Any]], None]:
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
