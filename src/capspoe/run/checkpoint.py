"""Settings and checkpoints of a run folder: atomic, checked by SHA-256, never pickled.

    RUN/config.json         the settings, the image shape, the format
    RUN/checkpoints/N/      model.safetensors, optimizer.safetensors, state.json with their SHA-256

A checkpoint is written under a temporary name and renamed, so a kill at any moment leaves the old
newest one or the new one. Each checkpoint also keeps the settings, so a lost config.json is not a
lost run. A folder that `capspoe export` wrote has config.json and model.safetensors alone, and
reads like a finished run; its weights may be float16.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from capspoe import __version__
from capspoe.atomic import disk_errors, replacing, sync_folder, write_atomic, write_synced
from capspoe.config import Config, from_dict
from capspoe.errors import RunError, damaged
from capspoe.memory import memory

FORMAT = 7  # incremented when another version of capspoe could misread the folder
KEPT = 2  # checkpoints to keep, so that one damaged file does not lose the run
EXPORTED = "model.safetensors"


DONE = "done"  # the stage of a finished run


class Run(NamedTuple):
    config: Config
    image: tuple[int, int, int]
    problem: str | None = None  # of config.json, when the settings come from a checkpoint


@dataclass(frozen=True)
class State:
    """How far training got: the stage, its finished steps, and what the log needs to resume."""

    stage: str = ""  # the name of a stage, or DONE
    step: int = 0
    seconds: float = 0.0
    metrics_bytes: int = 0  # length of metrics.jsonl
    window: dict[str, Any] = field(default_factory=dict)  # sums since its last line
    metrics_sha256: str = ""
    files: dict[str, str] = field(default_factory=dict)  # SHA-256 of the run's other files


class Saved(NamedTuple):
    path: Path
    state: State
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    problems: tuple[str, ...] = ()  # of newer checkpoints, which are damaged


# JSON files that contain their own checksum.


def json_bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def signed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its checksum."""
    canonical = json.dumps(content, sort_keys=True)
    return {**content, "sha256": hashlib.sha256(canonical.encode()).hexdigest()}


def read_json(path: Path) -> dict[str, Any]:
    """The content of a signed JSON file; ValueError if it is damaged."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError("is not valid JSON") from None
    if not isinstance(content, dict):
        raise ValueError("does not match its checksum")
    unsigned = {key: value for key, value in content.items() if key != "sha256"}
    if signed(unsigned) != content:
        raise ValueError("does not match its checksum")
    return unsigned


def create(folder: Path, config: Config, image: tuple[int, int, int]) -> None:
    write_atomic(folder / "config.json", json_bytes(settings(config, image)))


def settings(config: Config, image: tuple[int, int, int], **more: str) -> dict[str, Any]:
    """The content of config.json with its checksum."""
    content = {"format": FORMAT, "capspoe": __version__, "image": list(image), **more}
    return signed(content | dataclasses.asdict(config))


def exists(folder: Path) -> bool:
    """Whether the folder holds a run, even a damaged one."""
    return (folder / "config.json").exists() or bool(numbered(folder))


def exported(folder: Path) -> bool:
    """Whether `capspoe export` wrote the folder."""
    return (folder / EXPORTED).exists() and not numbered(folder)


def open_run(folder: Path) -> Run:
    """The settings of a run folder; those of its newest checkpoint if config.json is lost or damaged."""
    stored, problem = _stored_settings(folder)
    path = folder / "config.json"
    version = stored.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise damaged(f"{path} has no format")
    if version != FORMAT:
        advice = "train it again, or use the version that made it"
        if version > FORMAT:
            advice = "upgrade capspoe"
        formats = f"has format {version}, but this capspoe reads format {FORMAT}"
        raise RunError(f"{folder} {formats}; {advice}")
    image = stored.get("image")
    if not isinstance(image, list) or len(image) != 3:
        raise damaged(f"{path} has no image shape")
    if not all(isinstance(side, int) and 1 <= side <= 10**5 for side in image):
        raise damaged(f"{path} has no image shape")
    about = ("format", "capspoe", "image", "weights_sha256")
    fields = {name: value for name, value in stored.items() if name not in about}
    config = from_dict(fields, str(path))
    return Run(config, (image[0], image[1], image[2]), problem)


def _stored_settings(folder: Path) -> tuple[dict[str, Any], str | None]:
    """The content of config.json, or its copy in the newest checkpoint and why that was needed."""
    path = folder / "config.json"
    try:
        return read_json(path), None
    except OSError as error:
        problem = damaged(f"{path} cannot be read: {error.strerror}")
    except ValueError as error:
        problem = damaged(f"{path} {error}")
    for checkpoint in reversed(numbered(folder)):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return dict(read_json(checkpoint / "state.json")["settings"]), str(problem)
    if not exists(folder):
        raise RunError(f"{folder} is not a run folder: it has no config.json; train one first")
    raise problem


def save(folder: Path, state: State, weights: dict[str, Tensor], optimizer: dict[str, Tensor]) -> Path:
    """Add a checkpoint and drop all but the newest few."""
    number = max((int(path.name) for path in numbered(folder)), default=0) + 1
    final = folder / "checkpoints" / f"{number:08d}"
    stored, _ = _stored_settings(folder)
    content = {**dataclasses.asdict(state), "settings": stored}
    with replacing(final) as temporary:
        shutil.rmtree(temporary, ignore_errors=True)  # of a killed process
        temporary.mkdir(parents=True)
        for name, tensors in (("model", weights), ("optimizer", optimizer)):
            data = tensor_bytes(tensors)
            write_synced(temporary / f"{name}.safetensors", data)
            content[f"{name}_sha256"] = hashlib.sha256(data).hexdigest()
        write_synced(temporary / "state.json", json_bytes(signed(content)))
        sync_folder(temporary)
    for old in numbered(folder)[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(on_cpu, metadata)


def numbered(folder: Path) -> list[Path]:
    """The checkpoints, oldest first."""
    paths = (folder / "checkpoints").glob("*")
    checkpoints = [path for path in paths if re.fullmatch("[0-9]+", path.name)]
    return sorted(checkpoints, key=lambda path: int(path.name))


def newest(folder: Path) -> Saved:
    """The newest intact checkpoint, or the weights of an exported folder."""
    if exported(folder):
        stored, _ = _stored_settings(folder)
        weights = _read_tensors(folder / EXPORTED, stored.get("weights_sha256"))
        for name, tensor in weights.items():
            if tensor.dtype == torch.float16:
                weights[name] = tensor.float()
        return Saved(folder, State(DONE), weights, {})
    problems: list[str] = []
    for path in reversed(numbered(folder)):
        try:
            return read(path)._replace(problems=tuple(problems))
        except RunError as error:
            problems.append(str(error))
    if problems:
        lost = f"the weights are lost: remove {folder} and train again"
        raise damaged(f"no checkpoint is intact ({'; '.join(problems)}); {lost}")
    raise RunError(f"{folder} has no checkpoint yet; train it, or wait for the first one")


def read(path: Path) -> Saved:
    try:
        content = read_json(path / "state.json")
        model_sha256 = content.pop("model_sha256")
        optimizer_sha256 = content.pop("optimizer_sha256")
        del content["settings"]
        state = _parse_state(State(**content))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path / 'state.json'} is missing or damaged") from error
    weights = _read_tensors(path / "model.safetensors", model_sha256)
    optimizer = _read_tensors(path / "optimizer.safetensors", optimizer_sha256)
    return Saved(path, state, weights, optimizer)


def check_readable(path: Path) -> None:
    """Refuse weights that are no regular file, such as a device, or larger than the memory, before they are read."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise RunError(f"{path} is not a regular file")
    if status.st_size > memory():
        raise RunError(f"{path} has {status.st_size >> 20} MB, more than the memory: it cannot be the weights")


def _read_tensors(path: Path, expected: Any) -> dict[str, Tensor]:
    try:
        check_readable(path)
        data = path.read_bytes()
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith(b"version https://git-lfs"):
        raise RunError(f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    if hashlib.sha256(data).hexdigest() != expected:
        raise RunError(f"{path} is damaged: its checksum differs")
    try:
        return safetensors.torch.load(data)
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise RunError(f"{path} is not a safetensors file") from error


def _parse_state(state: State) -> State:
    """Refuse a state that makes no sense: a checksum guards against damage, not against bad content."""
    window = state.window or {"steps": 0, "images": 0, "sums": {}}
    counts = (state.step, state.metrics_bytes, window["steps"], window["images"])
    sums = []
    for value in window["sums"].values():
        if isinstance(value, list):
            sums += value
        else:
            sums.append(value)
    valid = (
        re.fullmatch(r"[a-z0-9-]{1,40}", state.stage)
        and all(isinstance(n, int) and 0 <= n < 2**60 for n in counts)
        and all(isinstance(n, float) and math.isfinite(n) for n in sums)
        and isinstance(state.seconds, (int, float))
        and state.seconds >= 0
        and all(Path(name).name == name for name, _ in state.files.items())
    )
    if not valid:
        raise ValueError("state")
    return state


def clean(folder: Path) -> None:
    """Remove temporary files of a killed process."""
    with disk_errors(folder):
        for path in folder.rglob(".*.writing"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def hashes_of(folder: Path, *names: str) -> dict[str, str]:
    """SHA-256 of the given files, as far as they exist."""
    hashes = {}
    for name in names:
        with contextlib.suppress(OSError), (folder / name).open("rb") as file:
            hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return hashes


def changed_files(folder: Path, state: State) -> list[str]:
    """Files of the run, other than checkpoints, that differ from when the state was saved."""
    now = hashes_of(folder, *state.files)
    return [name for name, expected in state.files.items() if now.get(name) != expected]
