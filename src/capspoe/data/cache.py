"""The cache folder: written only under a lock, by rename, so that what is in it is whole."""

import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from capspoe.errors import DataError

Report = Callable[[str], None]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)
STAGING = ".partial-"


def cache_dir() -> Path:
    """`$CAPSPOE_DATA`, else `capspoe` in the user's cache folder."""
    if own := os.environ.get("CAPSPOE_DATA"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules: a relative path there is to be ignored.
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "capspoe"


def sha256(path: Path) -> str:
    """The checksum of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def locked(folder: Path, report: Report) -> Iterator[None]:
    """Holds a data set's lock; the operating system frees it when its holder dies."""
    from filelock import FileLock, Timeout  # here, because most uses of the cache only read it

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            report(f"{folder.name}: waiting for another process that is fetching it")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """A fresh folder beside the final files, gone at the end; call it with the lock held.

    Whatever an earlier process left when it was killed goes first: nobody else can be using it.
    """
    with writing(folder):
        for stale in folder.glob(STAGING + "*"):
            shutil.rmtree(stale, ignore_errors=True)
        stage = Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))
    try:
        with writing(folder):
            yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def install(staged: Path, target: Path) -> None:
    """Moves a finished file into place: after a power cut it is there whole or not at all."""
    with staged.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(staged, target)
    if os.name == "posix":
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def set_aside(path: Path, folder: Path) -> Path:
    """Keeps a file that is not what it should be, under a name that nothing reads."""
    bad = folder / f"{path.name}.bad"
    os.replace(path, bad)
    return bad


def need_space(folder: Path, needed: int) -> None:
    """Says so before a download, rather than after it, when the disk cannot hold it."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _full(folder, f"{needed / 1e6:.0f} MB are needed, {free / 1e6:.0f} MB are free")


def is_disk_trouble(error: OSError) -> bool:
    """Whether the disk is full or closed to us, so that another source would not help."""
    return error.errno in FULL + CLOSED


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turns a full or read-only disk into one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise _full(folder, error.strerror or "disk full") from error
        if error.errno in CLOSED:
            raise DataError(
                f"cannot write to {folder} ({error.strerror}); "
                "set CAPSPOE_DATA to a folder that can be written"
            ) from error
        raise


def _full(folder: Path, why: str) -> DataError:
    return DataError(
        f"no space left in {folder} ({why}); free some, or set CAPSPOE_DATA to a folder on another disk"
    )
