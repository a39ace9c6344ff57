"""The run folder: written atomically, checked by SHA-256, resumed from the newest checkpoint that is whole.

    RUN/config.json         the settings, the image shape, the format
    RUN/metrics.jsonl       one line per few steps
    RUN/checkpoints/N/      model.safetensors, optimizer.safetensors, state.json with their SHA-256

A checkpoint is written beside the others under a temporary name and renamed into place, so a kill at any
moment leaves either the old newest one or the new one, never half of it. Nothing in a run folder is pickled.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from capspoe import __version__
from capspoe.config import Config, from_dict
from capspoe.errors import RunError

FORMAT = 1  # raised when an older capspoe could misread the folder
KEPT = 2  # checkpoints that stay, so that one damaged file does not lose the run


class Run(NamedTuple):
    config: Config
    image: tuple[int, int, int]


@dataclass(frozen=True)
class State:
    """Where training stands: steps done of a stage, and what is needed to carry on as if nothing happened."""

    stage: str
    step: int
    seconds: float = 0.0  # spent so far
    metrics_bytes: int = 0  # length of metrics.jsonl
    window: dict[str, Any] = field(default_factory=dict)  # sums since its last line


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


def settings(config: Config, image: tuple[int, int, int]) -> dict[str, Any]:
    """What config.json holds."""
    return {"format": FORMAT, "capspoe": __version__, "image": list(image), **dataclasses.asdict(config)}


def open_run(folder: Path) -> Run:
    """The settings of a run folder."""
    path = folder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RunError(f"{folder} is not a run folder: it has no config.json; train one first") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise damaged(f"{path} is not valid JSON") from error
    version = stored.get("format") if isinstance(stored, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise damaged(f"{path} does not say its format")
    if version > FORMAT:
        raise RunError(
            f"{folder} was made by a newer capspoe (format {version}, this one reads {FORMAT}); upgrade"
        )
    image = stored.get("image")
    if not (
        isinstance(image, list)
        and len(image) == 3
        and all(isinstance(side, int) and 1 <= side <= 10**5 for side in image)
    ):
        raise damaged(f"{path} does not say the image shape")
    return Run(from_dict(stored, str(path)), (image[0], image[1], image[2]))


def save(folder: Path, state: State, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> Path:
    """Add a checkpoint and drop all but the newest few."""
    home = folder / "checkpoints"
    number = max((int(path.name) for path in numbered(folder)), default=0) + 1
    temporary, final = home / f".writing-{number:08d}", home / f"{number:08d}"
    with writing(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        hashes = {}
        for name, tensors in (("model", weights), ("optimizer", optimizer)):
            data = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in tensors.items()})
            write_synced(temporary / f"{name}.safetensors", data)
            hashes[name] = hashlib.sha256(data).hexdigest()
        content = json.dumps({**dataclasses.asdict(state), "sha256": hashes})
        envelope = {"state": content, "sha256": hashlib.sha256(content.encode()).hexdigest()}
        write_synced(temporary / "state.json", json.dumps(envelope).encode())
        sync_folder(temporary)
        temporary.rename(final)
        sync_folder(home)
        for old in numbered(folder)[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return final


def numbered(folder: Path) -> list[Path]:
    """The checkpoints, oldest first."""
    home = folder / "checkpoints"
    found = [path for path in home.iterdir() if path.name.isdigit()] if home.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))


def newest(folder: Path) -> Saved:
    """The newest checkpoint whose files are what they were when written."""
    problems: list[str] = []
    for path in reversed(numbered(folder)):
        try:
            return read(path)._replace(damaged=problems)
        except RunError as error:
            problems.append(str(error))
    if problems:
        raise damaged(f"no checkpoint is whole ({'; '.join(problems)}); train it again")
    raise RunError(f"{folder} has no checkpoint yet; train it, or wait for the first one")


def read(path: Path) -> Saved:
    """One checkpoint, its checksums verified."""
    try:
        envelope = json.loads((path / "state.json").read_text(encoding="utf-8"))
        content = envelope["state"]
        if hashlib.sha256(content.encode()).hexdigest() != envelope["sha256"]:
            raise ValueError("checksum")
        stored = json.loads(content)
        hashes = stored.pop("sha256")
        state = State(**stored)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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


def clean(folder: Path) -> None:
    """Remove what a killed writer left behind."""
    for path in (*folder.glob(".*.writing"), *(folder / "checkpoints").glob(".writing-*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one training writes to a run folder. The lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no advisory lock on a folder
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise RunError(
            f"another training is writing to {folder}; wait for it, or choose another --out"
        ) from None
    try:
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a failing disk into one clear line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write to {folder}: {reason}; what was saved before is whole") from error
    except safetensors.SafetensorError as error:
        raise RunError(f"cannot write to {folder}: {error}; what was saved before is whole") from error


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        write_synced(temporary, data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """A rename is on disk only when its folder is."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
