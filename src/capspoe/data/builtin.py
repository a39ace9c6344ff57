"""The named data sets as sources."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capspoe.data.cifar import RECORD, decode_cifar
from capspoe.data.entries import Entry
from capspoe.data.idx import open_idx
from capspoe.data.images import hash_positions
from capspoe.data.prepare import Prepare
from capspoe.data.source import ArraySource
from capspoe.errors import DataError

IDX_PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
CIFAR_TRAIN = tuple(f"data_batch_{k}.bin" for k in range(1, 6))
CIFAR_PARTS = {"train": CIFAR_TRAIN, "test": ("test_batch.bin",), "all": (*CIFAR_TRAIN, "test_batch.bin")}
DIGITS_SIZE = (28, 28)


def open_builtin(entry: Entry, split: str, prepare: Prepare) -> ArraySource:
    """A named data set, whose files are in the cache and checked."""
    pixels, labels = {"digits": _digits, "cifar10": _cifar}.get(entry.name, _idx)(entry, split)
    source = ArraySource(pixels, labels, entry.classes, prepare=prepare)
    if len(source) != len(labels):
        raise DataError(f"{entry.name}: {len(source)} images but {len(labels)} labels")
    return source


Opened = tuple[Callable[[], NDArray[np.uint8]], NDArray[np.int64]]


def _idx(entry: Entry, split: str) -> Opened:
    parts = IDX_PARTS[split]
    labels = [open_idx(entry.folder / f"{part}-labels-idx1-ubyte") for part in parts]
    paths = tuple(entry.folder / f"{part}-images-idx3-ubyte" for part in parts)
    return partial(_idx_pixels, paths), np.concatenate(labels).astype(np.int64)


def _idx_pixels(paths: tuple[Path, ...]) -> NDArray[np.uint8]:
    arrays = [open_idx(path)[..., None] for path in paths]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _cifar(entry: Entry, split: str) -> Opened:
    paths = tuple(entry.folder / name for name in CIFAR_PARTS[split])
    labels = [np.fromfile(path, np.uint8)[::RECORD] for path in paths]
    return partial(_cifar_pixels, paths), np.concatenate(labels).astype(np.int64)


def _cifar_pixels(paths: tuple[Path, ...]) -> NDArray[np.uint8]:
    return np.concatenate([decode_cifar(path.read_bytes(), str(path))[0] for path in paths])


def _digits(entry: Entry, split: str) -> Opened:
    from sklearn.datasets import load_digits

    order = np.argsort(hash_positions(entry.images), kind="stable")
    rows = {"train": order[entry.test :], "test": order[: entry.test], "all": order}[split]
    rows = np.sort(rows)
    return partial(_digits_pixels, rows), load_digits().target[rows].astype(np.int64)


def _digits_pixels(rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """8x8 with values 0 to 16 brought to 28x28 with values 0 to 255."""
    from sklearn.datasets import load_digits

    small = np.rint(load_digits().images[rows] * (255 / 16)).astype(np.uint8)
    return Prepare(size=DIGITS_SIZE).batch(small[..., None])
