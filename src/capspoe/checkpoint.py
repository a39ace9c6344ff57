"""The run folder: written atomically, checked by SHA-256, resumed from the newest checkpoint that is whole.

    RUN/config.json         the settings, the image shape, the format
    RUN/metrics.jsonl       one line per few steps
    RUN/checkpoints/N/      model.safetensors, optimizer.safetensors, state.json with their SHA-256

A checkpoint is written beside the others under a temporary name and renamed into place, so a kill at any
moment leaves either the old newest one or the new one, never half of it. Each one also keeps the settings, so
that a lost config.json is not a lost run. Nothing in a run folder is pickled.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from capspoe import __version__, durable
from capspoe.config import Config, from_dict
from capspoe.durable import gone_unless_finished, sync_folder, write_atomically, write_synced, writing
from capspoe.errors import RunError

FORMAT = 1  # raised when an older capspoe could misread the folder
KEPT = 2  # checkpoints that stay, so that one damaged file does not lose the run


class Run(NamedTuple):
    config: Config
    image: tuple[int, int, int]
    damaged: str | None = None  # what is wrong with config.json, when the settings come from a checkpoint


@dataclass(frozen=True)
class State:
    """Where training stands: steps done of a stage, and what is needed to carry on as if nothing happened."""

    stage: str
    step: int
    seconds: float = 0.0  # spent so far
    metrics_bytes: int = 0  # length of metrics.jsonl
    window: dict[str, Any] = field(default_factory=dict)  # sums since its last line
    metrics_sha256: str = ""  # of so many bytes of it
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of the run's other files


class Saved(NamedTuple):
    state: State
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    damaged: list[str]  # newer checkpoints that could not be used, and why


def damaged(what: str) -> RunError:
    return RunError(f"the run is damaged: {what}")


def create(folder: Path, config: Config, image: tuple[int, int, int]) -> None:
    """Start a run folder."""
    with writing(folder):
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        content = json.dumps(settings(config, image), indent=2) + "\n"
        write_atomically(folder / "config.json", content.encode())


def settings(config: Config, image: tuple[int, int, int], **more: str) -> dict[str, Any]:
    """What config.json holds, its checksum included."""
    content = {"format": FORMAT, "capspoe": __version__, "image": list(image), **more}
    content |= dataclasses.asdict(config)
    return {**content, "sha256": _checksum(content)}


def exists(folder: Path) -> bool:
    """Whether there is a run in the folder, be it damaged."""
    return (folder / "config.json").exists() or bool(numbered(folder))


def open_run(folder: Path) -> Run:
    """The settings of a run folder; those of its newest checkpoint when config.json is lost or damaged."""
    path = folder / "config.json"
    try:
        return _run_of(_stored_settings(folder), path)
    except RunError as error:
        copy = _settings_in_checkpoints(folder)
        if copy is None:
            raise
        return _run_of(copy, path)._replace(damaged=str(error))


def _stored_settings(folder: Path) -> dict[str, Any]:
    """What config.json says, once it is known to be what was written."""
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        if numbered(folder):
            raise damaged(f"{path} is missing") from None
        raise RunError(f"{folder} is not a run folder: it has no config.json; train one first") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise damaged(f"{path} is not valid JSON") from error
    if not isinstance(stored, dict):
        raise damaged(f"{path} does not say its format")
    expected = stored.pop("sha256", None)
    if expected is not None and expected != _checksum(stored):
        raise damaged(f"the checksum of {path} differs")
    return stored


def _settings_in_checkpoints(folder: Path) -> dict[str, Any] | None:
    for path in reversed(numbered(folder)):
        with contextlib.suppress(RunError):
            settings = _described(path).get("settings")
            if isinstance(settings, dict):
                return settings
    return None


def _run_of(stored: dict[str, Any], path: Path) -> Run:
    version, image = stored.get("format"), stored.get("image")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise damaged(f"{path} does not say its format")
    if version > FORMAT:
        raise RunError(
            f"{path.parent} was made by a newer capspoe (format {version}, this one reads {FORMAT}); upgrade"
        )
    if not (
        isinstance(image, list)
        and len(image) == 3
        and all(isinstance(side, int) and 1 <= side <= 10**5 for side in image)
    ):
        raise damaged(f"{path} does not say the image shape")
    config = from_dict(stored, str(path))
    known = {"format", "capspoe", "image", "weights_sha256", *dataclasses.asdict(config)}
    if unknown := set(stored) - known:
        raise damaged(f"{path} has unknown entries ({', '.join(sorted(unknown))[:60]})")
    return Run(config, (image[0], image[1], image[2]))


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def save(folder: Path, state: State, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> Path:
    """Add a checkpoint and drop all but the newest few."""
    home = folder / "checkpoints"
    number = max((int(path.name) for path in numbered(folder)), default=0) + 1
    temporary, final = home / f".writing-{number:08d}", home / f"{number:08d}"
    settings = _settings_to_keep(folder)
    with writing(folder), gone_unless_finished(temporary):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        hashes = {}
        for name, tensors in (("model", weights), ("optimizer", optimizer)):
            data = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
            write_synced(temporary / f"{name}.safetensors", data)
            hashes[name] = hashlib.sha256(data).hexdigest()
        content = json.dumps({**dataclasses.asdict(state), "sha256": hashes, "settings": settings})
        envelope = {"state": content, "sha256": hashlib.sha256(content.encode()).hexdigest()}
        write_synced(temporary / "state.json", json.dumps(envelope).encode())
        sync_folder(temporary)
        temporary.rename(final)
        sync_folder(home)
        for old in numbered(folder)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return final


def _settings_to_keep(folder: Path) -> dict[str, Any] | None:
    try:
        return _stored_settings(folder)
    except RunError:
        return _settings_in_checkpoints(folder)


def numbered(folder: Path) -> list[Path]:
    """The checkpoints, oldest first."""
    home = folder / "checkpoints"
    try:
        names = [name for name in os.listdir(home) if name.isascii() and name.isdigit()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunError(f"{home} cannot be read: {error.strerror}") from error
    return [home / name for name in sorted(names, key=int)]


def newest(folder: Path) -> Saved:
    """The newest checkpoint whose files are what they were when written."""
    problems: list[str] = []
    for path in reversed(numbered(folder)):
        try:
            return read(path)._replace(damaged=problems)
        except RunError as error:
            problems.append(str(error))
    if problems:
        raise damaged(
            f"no checkpoint is whole ({'; '.join(problems)}); what it had learned is lost: "
            f"remove {folder} and train it again"
        )
    raise RunError(f"{folder} has no checkpoint yet; train it, or wait for the first one")


def _described(path: Path) -> dict[str, Any]:
    """What a checkpoint's state.json says, its checksum verified."""
    try:
        envelope = json.loads((path / "state.json").read_text(encoding="utf-8"))
        content = envelope["state"]
        if hashlib.sha256(content.encode()).hexdigest() != envelope["sha256"]:
            raise ValueError("checksum")
        stored = json.loads(content)
        if not isinstance(stored, dict):
            raise ValueError("not an object")
        return stored
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path / 'state.json'} is missing or damaged") from error


def read(path: Path) -> Saved:
    """One checkpoint, its checksums verified."""
    stored = _described(path)
    try:
        stored.pop("settings", None)
        hashes = dict(stored.pop("sha256"))
        state = checked_state(State(**stored))
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / 'state.json'} is missing or damaged") from error
    tensors = {}
    for name in ("model", "optimizer"):
        file = path / f"{name}.safetensors"
        try:
            data = file.read_bytes()
        except OSError as error:
            raise RunError(f"{file} cannot be read: {error.strerror}") from error
        if hashlib.sha256(data).hexdigest() != hashes.get(name):
            raise RunError(f"{file} is damaged: its checksum differs")
        try:
            tensors[name] = safetensors.torch.load(data)
        except (safetensors.SafetensorError, ValueError, KeyError) as error:
            raise RunError(f"{file} is not a safetensors file") from error
    return Saved(state, tensors["model"], tensors["optimizer"], [])


def checked_state(state: State) -> State:
    """A checksum tells damage, not intent: what does not fit is refused here, before anything relies on it."""
    plain = (
        isinstance(state.stage, str)
        and re.fullmatch(r"autoencoder|capsules-[0-9]{1,4}|prior|done", state.stage)
        and isinstance(state.step, int)
        and isinstance(state.metrics_bytes, int)
        and isinstance(state.seconds, (int, float))
        and isinstance(state.metrics_sha256, str)
        and (state.window == {} or _is_window(state.window))
        and isinstance(state.files, dict)
        and all(Path(name).name == name and isinstance(value, str) for name, value in state.files.items())
    )
    if not plain or not (0 <= state.step < 2**60 and 0 <= state.metrics_bytes < 2**60 and state.seconds >= 0):
        raise ValueError("state")
    return state


def _is_window(stored: Any) -> bool:
    """Whether it is what `journal.Window` stores: two counts, and sums that are numbers or lists of them."""
    if not isinstance(stored, dict) or stored.keys() != {"steps", "images", "sums"}:
        return False
    counts, sums = (stored["steps"], stored["images"]), stored["sums"]
    if not isinstance(sums, dict) or not all(isinstance(n, int) and 0 <= n < 2**60 for n in counts):
        return False
    numbers = [n for value in sums.values() for n in (value if isinstance(value, list) else [value])]
    return all(isinstance(n, float) and math.isfinite(n) for n in numbers)


def clean(folder: Path) -> None:
    """Remove what a killed writer left behind."""
    with writing(folder):
        for path in (*folder.glob(".*.writing"), *(folder / "checkpoints").glob(".writing-*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def drop_damaged(folder: Path) -> None:
    """Remove the checkpoints newer than the newest whole one, so that they do not take the place of whole ones."""
    for path in reversed(numbered(folder)):
        try:
            read(path)
            return
        except RunError:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def hashes_of(folder: Path, *names: str) -> dict[str, str]:
    """SHA-256 of files of the run, for those that are there."""
    found = {}
    for name in names:
        with contextlib.suppress(OSError), (folder / name).open("rb") as file:
            found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def changed_files(folder: Path, state: State) -> list[str]:
    """The files of the run, other than its checkpoints, that are not what they were when it was saved."""
    now = hashes_of(folder, *state.files)
    return [name for name, expected in state.files.items() if now.get(name) != expected]


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one training writes to a run folder."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(durable.locked(folder, wait=False))
        except BlockingIOError:
            raise RunError(
                f"another training is writing to {folder}; wait for it, or choose another --out"
            ) from None
        yield
