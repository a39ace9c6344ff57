"""Files that are the old ones or the new ones, whatever happens in between."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import safetensors

from capspoe.errors import RunError


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


@contextlib.contextmanager
def gone_unless_finished(path: Path) -> Iterator[None]:
    """A full disk, a second Ctrl-C: half a file, or half a folder of them, only takes space."""
    try:
        yield
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Only one process at a time is in here with a folder. The lock goes with the process, however it ends.

    Whoever comes second waits, or gets a BlockingIOError.
    """
    try:
        import fcntl
    except ImportError:  # Windows has no advisory lock on a folder
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomically(path: Path, data: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.writing")
    with gone_unless_finished(temporary):
        write_synced(temporary, data)
        temporary.replace(path)
    sync_folder(path.parent)


def remove_files(folder: Path, *names: str) -> None:
    """Remove those that are there. Where there are none nothing is written, so a finished run may be read-only."""
    for path in (folder / name for name in names):
        if path.exists():
            with writing(folder):
                path.unlink()


def sync_folder(path: Path) -> None:
    """A rename is on disk only when its folder is."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
