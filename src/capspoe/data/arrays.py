"""Images in .npy and .npz files. Pickles are never loaded."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from capspoe.data.datasets import COLOURS, ArrayDataset, Classes, Dataset, Labels, Subset
from capspoe.data.given import FROM_PYTHON
from capspoe.data.preprocess import Prepare, as_uint8, pixel_scale
from capspoe.data.splits import hash_positions, split_rows
from capspoe.errors import DataError

IMAGE_NAMES = ("images", "pixels", "x", "data", "arr_0")
LABEL_NAMES = ("labels", "label", "y", "targets", "target", "arr_1")
MAX_LISTED = 12  # array names in an error
MAX_ARRAYS = 10_000  # in an .npz
OBJECTS = ("Object arrays", "Python objects")  # in NumPy's errors about arrays that need pickles


def open_npy(path: Path, split: str, prepare: Prepare) -> Dataset:
    """Memory-map an .npy of images; it has no labels."""
    with _errors(path):
        given = open_memmap(path, mode="r")
        array = _as_images(given, str(path))
    rows = split_rows(hash_positions(len(array)), split, str(path))
    scale = pixel_scale(array, str(path))
    dataset = ArrayDataset(array, scale=scale, prepare=prepare)
    dataset.understood = f"{path.name}: {understood(given, array, scale)}"
    return Subset(dataset, rows)


def open_npz(path: Path, split: str, prepare: Prepare) -> Dataset:
    """Read an .npz of images, with labels and a train and test part if it has them."""
    with path.open("rb") as stream, _errors(path), NpzFile(stream, allow_pickle=False) as file:
        if len(file.files) > MAX_ARRAYS:
            raise DataError(f"{path}: has more than {MAX_ARRAYS} arrays")
        parts = _find_parts(file, path)
        pixels, lengths, line = _pixels(file, path, [name for name, _ in parts])
        labels, classes = _labels(file, path, [name for _, name in parts], lengths)
    if len(parts) == 2:
        # The train images come first in `pixels`.
        everything = np.arange(len(pixels))
        border = lengths[0]
        rows = {"train": everything[:border], "test": everything[border:], "all": everything}[split]
    else:
        rows = split_rows(hash_positions(len(pixels)), split, str(path))
    dataset = ArrayDataset(pixels, labels, classes, prepare=prepare)
    dataset.understood = f"{path.name}: {line}"
    return Subset(dataset, rows)


def from_array(images: NDArray[Any], prepare: Prepare) -> Dataset:
    """All images of an array, as an .npy has them."""
    name = FROM_PYTHON
    array = _as_images(images, name)
    scale = pixel_scale(array, name)
    dataset = ArrayDataset(array, scale=scale, prepare=prepare)
    dataset.understood = understood(images, array, scale)
    return dataset


def understood(given: NDArray[Any], images: NDArray[Any], scale: int) -> str:
    """One line about how an array was read: as `images` (n, H, W, C), multiplied by `scale`."""
    count, height, width, channels = images.shape
    colour = {1: "grey", 3: "RGB", 4: "RGBA"}.get(channels, f"{channels} channels")
    values = "in [0, 1]" if scale == 255 else "0 to 255"
    layout = "(n, H, W)"
    if given.ndim == 4:
        layout = "(n, H, W, C)" if given.shape == images.shape else "(n, C, H, W)"
    noun = "image" if count == 1 else "images"
    return f"{count:,} {noun} of {height}x{width}, {colour}, {given.dtype} {values}, read as {layout}"


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turn any error of NumPy and zipfile on damaged or hostile bytes into one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        # A disk that fails is not the file's fault; EINVAL comes from wrong offsets in the file.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        if any(words in reason for words in OBJECTS):
            raise DataError(f"{path}: holds Python objects, which can run code; save an array of numbers") from error
        raise DataError(f"{path}: damaged, or not what its name says ({reason})") from error


def _array(file: NpzFile, name: str) -> NDArray[Any]:
    array = file[name]
    if not isinstance(array, np.ndarray):  # NumPy returns the bytes of a member that is no .npy
        raise ValueError(f"{name} is not an array")
    return array


def _find_parts(file: NpzFile, path: Path) -> list[tuple[str, str | None]]:
    """Return the names of images and labels: of train and test if there are both, else of everything."""
    names = {name.lower(): name for name in file.files}

    def find(words: tuple[str, ...], part: str) -> str | None:
        for word in words:
            spellings = [f"{word}_{part}", f"{part}_{word}"] if part else [word]
            for spelling in spellings:
                if spelling in names:
                    return names[spelling]
        return None

    train = find(IMAGE_NAMES, "train")
    test = find(IMAGE_NAMES, "test")
    whole = find(IMAGE_NAMES, "")
    if train and test:
        return [(train, find(LABEL_NAMES, "train")), (test, find(LABEL_NAMES, "test"))]
    if train:
        return [(train, find(LABEL_NAMES, "train"))]
    if whole:
        return [(whole, find(LABEL_NAMES, ""))]
    # No familiar name: a single array with the shape of images must be the images.
    candidates = [name for name in file.files if _array(file, name).ndim in (3, 4)]
    if len(candidates) == 1:
        return [(candidates[0], None)]
    some = ", ".join(file.files[:MAX_LISTED])
    if len(file.files) > MAX_LISTED:
        some += ", ..."
    raise DataError(
        f"{path}: which of its arrays ({some or 'none'}) are the images? "
        "Name them images and labels, or x_train, y_train, x_test and y_test"
    )


def _pixels(file: NpzFile, path: Path, names: list[str]) -> tuple[NDArray[np.uint8], list[int], str]:
    """Return all images, the number of images in each array, and a line about how the first was read."""
    arrays = [_array(file, name) for name in names]
    parts = [_as_images(array, f"{path}, array {name!r}") for name, array in zip(names, arrays, strict=True)]
    if len({part.shape[1:] for part in parts}) > 1:
        raise DataError(f"{path}: train images are {parts[0].shape[1:]}, test images {parts[1].shape[1:]}")
    scales = [pixel_scale(part, f"{path}, array {name!r}") for part, name in zip(parts, names, strict=True)]
    # One part may be too dark to show its scale, so floats share the scale of the brighter part.
    if {part.dtype.kind for part in parts} == {"f"}:
        scales = [min(scales)] * len(parts)
    pixels = [as_uint8(part, scale) for part, scale in zip(parts, scales, strict=True)]
    lengths = [len(part) for part in parts]
    line = f"{names[0]} has {understood(arrays[0], parts[0], scales[0])}"
    if len(pixels) == 1:
        return pixels[0], lengths, line
    return np.concatenate(pixels), lengths, line


def _as_images(array: NDArray[Any], name: str) -> NDArray[Any]:
    """View (n, H, W), (n, H, W, C) or (n, C, H, W) as (n, H, W, C).

    C is 1, 3 or 4 if possible; any other number of channels must be smaller than the sides of the image.
    """
    if array.size == 0:
        raise DataError(f"{name}: has no images (shape {array.shape})")
    if array.ndim == 3:
        return array[..., None]
    if array.ndim == 4:
        _, first, middle, last = array.shape
        if last in COLOURS or (first not in COLOURS and last < min(first, middle)):
            return array
        if first in COLOURS or first < min(middle, last):
            return array.transpose(0, 2, 3, 1)
    layouts = "(n, H, W), (n, H, W, C) or (n, C, H, W) with few channels"
    raise DataError(f"{name}: shape {array.shape} is not {layouts}")


def _labels(file: NpzFile, path: Path, names: list[str | None], lengths: list[int]) -> tuple[Labels, Classes]:
    """Return labels 0, 1, 2, ... and the sorted names of text labels."""
    parts = []
    for name, length in zip(names, lengths, strict=True):
        if name is None:
            return None, None
        part = _array(file, name)
        # Keras stores the labels of CIFAR-10 as a column.
        if part.ndim == 2 and part.shape[1] == 1:
            part = part[:, 0]
        if part.shape != (length,):
            raise DataError(f"{path}, array {name!r}: labels of shape {part.shape} for {length} images")
        parts.append(part)
    labels = np.concatenate(parts)
    kind = labels.dtype.kind
    if kind in "US":
        texts, numbers = np.unique(labels, return_inverse=True)
        if kind == "S":
            classes = tuple(text.decode(errors="replace") for text in texts)
        else:
            classes = tuple(str(text) for text in texts)
        return numbers.reshape(-1).astype(np.int64), classes
    if kind not in "buif" or (kind == "f" and not (labels == np.floor(labels)).all()):
        raise DataError(f"{path}: labels of type {labels.dtype} must be whole numbers or text")
    if labels.min() < 0 or labels.max() > np.iinfo(np.int32).max:
        raise DataError(f"{path}: labels from {labels.min()} to {labels.max()}; they must start at 0")
    return labels.astype(np.int64), None
