"""Atomic writes: after a crash a file holds either its old content or its new content, never a mixture."""

import contextlib
import os
import shutil
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from capspoe.errors import RunError


@contextlib.contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn disk errors into one clear line."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunError(f"cannot write to {folder}: {reason}; files saved before are intact") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name that becomes `path` at the end of the block, or is removed if the block fails."""
    temporary = path.with_name(f".{path.name}.writing")
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        except BaseException:
            # It may be a folder or a file.
            shutil.rmtree(temporary, ignore_errors=True)
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextlib.contextmanager
def locked(folder: Path, wait: bool) -> Iterator[None]:
    """Hold an exclusive lock on a folder, which is created if needed. A second process waits, or gets a RunError."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows has no advisory lock on a folder
        yield
        return
    mode = fcntl.LOCK_EX
    if not wait:
        mode |= fcntl.LOCK_NB
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, mode)
        yield
    except BlockingIOError:
        problem = f"another training is writing to {folder}"
        raise RunError(f"{problem}; wait, or choose another --out") from None
    finally:
        os.close(handle)


def write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes) -> None:
    """Write under a temporary name and rename."""
    with replacing(path) as temporary:
        write_synced(temporary, data)


def remove_files(folder: Path, *names: str) -> None:
    """Remove files if they exist. Otherwise write nothing, so a finished run may be read-only."""
    for name in names:
        path = folder / name
        if path.exists():
            with disk_errors(folder):
                path.unlink()


def sync_folder(path: Path) -> None:
    """Flush a rename to disk."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def npz_writer(path: Path) -> Iterator["NpzWriter"]:
    """Write arrays to an .npz piece by piece, in constant memory; the file appears when all are complete."""
    with replacing(path) as temporary, NpzWriter(temporary, "w") as archive:
        yield archive


class NpzWriter(zipfile.ZipFile):
    def add(self, name: str, array: np.ndarray) -> None:
        self.add_pieces(name, array.shape, array.dtype, [array])

    def add_pieces(self, name: str, shape: tuple[int, ...], dtype: Any, pieces: Iterable[np.ndarray]) -> None:
        """An array of the given shape from pieces in memory order."""
        header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
        with self.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for piece in pieces:
                file.write(np.ascontiguousarray(piece, dtype).tobytes())
