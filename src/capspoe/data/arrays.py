"""Images in .npy and .npz files. Headers are read here, so that no pickle is ever loaded."""

from collections.abc import Iterable
from functools import partial
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from capspoe.data.archives import damage_in, open_zip
from capspoe.data.images import hash_positions, split_rows
from capspoe.data.labels import number_labels
from capspoe.data.prepare import Prepare
from capspoe.data.source import ArraySource
from capspoe.data.values import as_bytes, scale_of
from capspoe.errors import DataError

IMAGE_NAMES = ("images", "pixels", "x", "data", "arr_0")
NAMED = 12  # arrays in an error; an .npz can have thousands
COLOURS = (1, 3, 4)  # grey, red-green-blue, and with alpha
LABEL_NAMES = ("labels", "label", "y", "targets", "target", "arr_1")


class Header(NamedTuple):
    """What an .npy header promises."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    bytes: int  # of the header itself


def open_npy(path: Path, split: str, prepare: Prepare) -> ArraySource:
    """An .npy of images, mapped rather than read; it has no labels."""
    opener = partial(_map_npy, path.absolute())
    array = opener()
    rows = split_rows(hash_positions(len(array)), split, str(path))
    return ArraySource(opener, rows=rows, scale=scale_of(array, str(path)), prepare=prepare)


def open_npz(path: Path, split: str, prepare: Prepare) -> ArraySource:
    """An .npz with images, perhaps labels, perhaps a train and a test part (see `_layout`)."""
    layout = _layout(path)
    opener = partial(_read_npz_pixels, path.absolute(), tuple(images for images, _ in layout))
    lengths = [header.shape[0] for header in headers_of(path, [images for images, _ in layout])]
    labels, classes = _npz_labels(path, layout, lengths)
    if len(layout) == 2:
        edges = {"train": (0, lengths[0]), "test": (lengths[0], sum(lengths)), "all": (0, sum(lengths))}
        rows = np.arange(*edges[split], dtype=np.int64)
    else:
        rows = split_rows(hash_positions(lengths[0]), split, str(path))
    return ArraySource(opener, None if labels is None else labels[rows], classes, rows=rows, prepare=prepare)


def headers_of(path: Path, members: Iterable[str]) -> list[Header]:
    """The headers of some arrays of an .npz."""
    found = []
    with damage_in(path), open_zip(path) as zipped:
        for member in members:
            with zipped.open(f"{member}.npy") as stream:
                size = zipped.getinfo(f"{member}.npy").file_size
                found.append(_header(stream, size, f"{path}, array {member!r}"))
    return found


def _layout(path: Path) -> list[tuple[str, str | None]]:
    """(images, labels) names: of train and test where both are there, else of everything."""
    with damage_in(path), open_zip(path) as zipped:
        members = [name.removesuffix(".npy") for name in zipped.namelist() if name.endswith(".npy")]
    names = {name.lower(): name for name in members}
    parts = [_named(names, (f"{{}}_{part}", f"{part}_{{}}")) for part in ("train", "test")]
    if parts[0] and parts[1]:
        return [parts[0], parts[1]]
    if whole := parts[0] or _named(names, ("{}",)):
        return [whole]
    headers = headers_of(path, members)
    pictures = [name for name, header in zip(members, headers, strict=True) if len(header.shape) in (3, 4)]
    if len(pictures) == 1:
        return [(pictures[0], None)]
    some = ", ".join(members[:NAMED]) + (", ..." if len(members) > NAMED else "")
    raise DataError(
        f"{path}: which of its arrays ({some or 'none'}) are the images? "
        "Name them images and labels, or x_train, y_train, x_test and y_test"
    )


def _named(names: dict[str, str], patterns: tuple[str, ...]) -> tuple[str, str | None] | None:
    def first(words: tuple[str, ...]) -> str | None:
        keys = (pattern.format(word) for word in words for pattern in patterns)
        return next((names[key] for key in keys if key in names), None)

    images = first(IMAGE_NAMES)
    return (images, first(LABEL_NAMES)) if images else None


def _npz_labels(
    path: Path, layout: list[tuple[str, str | None]], lengths: list[int]
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    parts = []
    for (_, name), length in zip(layout, lengths, strict=True):
        if name is None:
            return None, None
        labels, what = _read_npz(path, name), f"{path}, array {name!r}"
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.shape != (length,):
            raise DataError(f"{what}: labels of shape {labels.shape} for {length} images; give one per image")
        parts.append(labels)
    return number_labels(np.concatenate(parts), f"{path}, labels")


def _read_npz_pixels(path: Path, members: tuple[str, ...]) -> NDArray[np.uint8]:
    named = {member: f"{path}, array {member!r}" for member in members}
    arrays = {member: _as_images(_read_npz(path, member), what) for member, what in named.items()}
    scales = {member: scale_of(array, named[member]) for member, array in arrays.items()}
    # Floats of a test part that happen to be dark are still on the scale of the train part.
    floats = [member for member, array in arrays.items() if array.dtype.kind == "f"]
    scales |= dict.fromkeys(floats, min((scales[member] for member in floats), default=1))
    parts = [as_bytes(array, scales[member]) for member, array in arrays.items()]
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(f"{path}: train images are {parts[0].shape[1:]}, test images {parts[1].shape[1:]}")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _map_npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        header = _header(file, path.stat().st_size, str(path))
    order: Any = "F" if header.fortran else "C"
    array = np.memmap(path, header.dtype, mode="r", offset=header.bytes, shape=header.shape, order=order)
    return _as_images(array, str(path))


def _read_npz(path: Path, member: str) -> NDArray[Any]:
    header = headers_of(path, [member])[0]
    try:
        with damage_in(path), open_zip(path) as zipped, zipped.open(f"{member}.npy") as stream:
            data = stream.read()
    except MemoryError as error:
        raise DataError(
            f"{path}: array {member!r} does not fit into memory; an .npy would be mapped"
        ) from error
    order: Any = "F" if header.fortran else "C"
    values = np.frombuffer(data, header.dtype, offset=header.bytes)
    return values.reshape(header.shape, order=order)


def _header(stream: IO[bytes], size: int, what: str) -> Header:
    """The header of an .npy, once it is known to be of plain values that are all there."""
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except Exception as error:  # the header is a Python literal: it can be wrong in a dozen ways
        raise DataError(f"{what}: not an array that NumPy saved, or damaged; pickles are not read") from error
    if dtype.hasobject:
        raise DataError(f"{what}: holds Python objects, which could run code when read; save plain numbers")
    promised, there = prod(shape) * dtype.itemsize, size - stream.tell()
    if promised != there:
        raise DataError(f"{what}: its header promises {promised} bytes but {there} follow it")
    if promised == 0 or not shape:
        raise DataError(f"{what}: the array of shape {shape} holds no images or labels")
    return Header(shape, fortran, dtype, stream.tell())


def _as_images(array: NDArray[Any], what: str) -> NDArray[Any]:
    """(n, H, W, C) from (n, H, W), (n, H, W, C) or (n, C, H, W).

    C is 1, 3 or 4 wherever that can be; another number of channels is smaller than both sides of the image.
    """
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 4:
        _, first, middle, last = array.shape
        if last in COLOURS or (first not in COLOURS and last < min(first, middle)):
            return array
        if first in COLOURS or first < min(middle, last):
            return array.transpose(0, 2, 3, 1)
    raise DataError(
        f"{what}: shape {array.shape} is not (n, H, W), (n, H, W, C) or (n, C, H, W) with fewer channels than pixels "
        "on a side"
    )
