"""One way in: a name from the catalogue, or a path to one's own images."""

import os
import warnings
from pathlib import Path

from capspoe.data.arrays import open_npy, open_npz
from capspoe.data.builtin import open_builtin
from capspoe.data.chain import fetch
from capspoe.data.entries import ENTRIES, did_you_mean, info
from capspoe.data.folder import FolderSource, open_folder
from capspoe.data.images import Images, check_split
from capspoe.data.prepare import Prepare
from capspoe.data.source import Failure, Source, describe
from capspoe.errors import CapspoeWarning, DataError, InputError

Size = int | tuple[int, int] | None


def load(
    name_or_path: str | os.PathLike[str],
    split: str = "train",
    *,
    size: Size = None,
    crop: Size = None,
    colour: str | None = None,
    offline: bool = False,
    skip_bad: bool = False,
    workers: int = 0,
) -> Images:
    """All images of a split in memory: pixels uint8 (n, H, W, C), labels int64 (n,) or None.

    The arguments are those of `open_source`, which needs no memory for the whole.
    """
    source = _open(name_or_path, split, Prepare.of(size, crop, colour), offline)
    if isinstance(source, FolderSource) and skip_bad:
        images, failures = source.readable_images(workers)
        _warn(failures, len(source))
        return images
    return source.images(workers)


def open_source(
    name_or_path: str | os.PathLike[str],
    split: str = "train",
    *,
    size: Size = None,
    crop: Size = None,
    colour: str | None = None,
    offline: bool = False,
    skip_bad: bool = False,
    workers: int = 0,
) -> Source:
    """Images with random access, decoded when asked for.

    `name_or_path` is a name in `catalog()`, a folder of images, an .npy or an .npz; `split` is train, test or
    all. `size` resizes, then `crop` cuts out the centre (a number, or height and width); `colour` is grey,
    rgb or None to keep it. With `offline` nothing is fetched. An image that cannot be read is an error when
    its batch is asked for; `skip_bad` decodes everything once, in `workers` processes, and leaves such
    images out with a warning.
    """
    source = _open(name_or_path, split, Prepare.of(size, crop, colour), offline)
    if isinstance(source, FolderSource) and skip_bad and (failures := source.failures(workers)):
        readable = source.without(failures)
        _warn(failures, len(source))
        return readable
    return source


def _open(name_or_path: str | os.PathLike[str], split: str, prepare: Prepare, offline: bool) -> Source:
    check_split(split)
    if isinstance(name_or_path, str) and name_or_path in ENTRIES:
        fetch(name_or_path, offline)
        return open_builtin(info(name_or_path), split, prepare)
    path = Path(os.path.expanduser(name_or_path))
    if not os.fspath(name_or_path) or not _exists(path):
        names = ", ".join(ENTRIES)
        raise InputError(
            f"{str(name_or_path)!r} is no data set ({names}) and no file or folder here"
            f"{did_you_mean(str(name_or_path))}"
        )
    readers = {".npy": open_npy, ".npz": open_npz}
    reader = open_folder if path.is_dir() else readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path}: give a folder of images, an .npy or an .npz")
    try:
        return reader(path, split, prepare)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder that may not be entered, a name that is too long
        raise DataError(f"{str(path)[:200]}: cannot be read ({error.strerror})") from error


def _warn(failures: list[Failure], count: int) -> None:
    if failures:
        warnings.warn(f"skipped: {describe(failures, count)}", CapspoeWarning, stacklevel=3)
