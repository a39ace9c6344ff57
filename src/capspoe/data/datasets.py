"""Data sets of images with random access: in memory, in a memory-mapped file, or decoded from files on demand."""

import hashlib
import json
import os
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capspoe.data.preprocess import Prepare, as_uint8
from capspoe.data.splits import evenly_spaced
from capspoe.errors import CapspoeWarning, DataError, InputError

AHEAD = 2  # chunks decoded ahead per worker
CHUNK = 256  # images decoded at a time, and images in the fingerprint of a sampled data set
MAX_HASHED = 256 << 20  # bytes; the fingerprint of a larger data set is sampled
COLOURS = (1, 3, 4)  # channels: grey, RGB, RGB and alpha
MAX_LISTED = 5  # unreadable images that an error names
# What a part of a data set takes over from the whole.
DESCRIPTION = ("shape", "labels", "classes", "file_names", "decodes", "verified", "understood", "what", "skippable")

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64] | None
Classes = tuple[str, ...] | None


class Images(NamedTuple):
    """Pixels uint8 (n, H, W, C) and labels int64 (n,), or None without labels."""

    pixels: Pixels
    labels: Labels


class Failure(NamedTuple):
    """An image that cannot be read."""

    name: str
    reason: str


Read = tuple[Pixels, list[Failure]]


class Dataset(ABC):
    """Images of one shape in a fixed order."""

    shape: tuple[int, int, int]  # (H, W, C)
    labels: Labels = None
    classes: Classes = None  # names of the labels
    file_names: list[str] | None = None  # relative to the folder; None if the images are not files
    decodes: bool = False  # reading decodes files, so workers help
    verified: bool = False  # its files have been verified by checksums
    understood: str | None = None  # one line about how an array was read
    what: str = "images"  # what an error calls them: of a split, "training images" or "test images"
    skippable: bool = False  # whether the user can choose to skip unreadable images, with --skip-bad

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: NDArray[np.int64]) -> Read:
        """Return the images at these indices and the failures among them, whose pixels are black."""

    @property
    def nbytes(self) -> int:
        """Memory that all images take once decoded."""
        return len(self) * int(np.prod(self.shape))

    def batch(self, indices: ArrayLike) -> Pixels:
        """Return the images at these indices, uint8 (len(indices), H, W, C)."""
        chosen = self._checked(indices)
        if not len(chosen):
            return np.empty((0, *self.shape), np.uint8)
        return self._all_read(*self.read(chosen))

    def batches(self, batch_size: int, order: ArrayLike | None = None, workers: int = 0) -> Iterator[Pixels]:
        """Yield batches of images; the last one may be smaller.

        Parameters
        ----------
        batch_size : images in a batch
        order : indices of the images (default: all, in order)
        workers : threads that decode a few batches ahead; Pillow releases the GIL while decoding
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it must be at least 1")
        if order is None:
            order = np.arange(len(self))
        indices = self._checked(order)
        for pixels, failures in self._read_in_chunks(batch_size, indices, workers):
            yield self._all_read(pixels, failures)

    def names(self, indices: ArrayLike) -> list[str]:
        """Return the relative path of each file, or the index if the images are not files."""
        chosen = self._checked(indices).tolist()
        if self.file_names is None:
            return [str(k) for k in chosen]
        return [self.file_names[k] for k in chosen]

    def first(self, count: int) -> "Dataset":
        """Return the first `count` images, or all if there are fewer."""
        if count >= len(self):
            return self
        return Subset(self, np.arange(count))

    def spread(self, count: int) -> "Dataset":
        """Return `count` evenly spaced images, or all if there are fewer."""
        if count >= len(self):
            return self
        return Subset(self, evenly_spaced(len(self), count))

    def images(self, workers: int = 0) -> Images:
        """Decode everything into memory."""
        pixels = np.empty((len(self), *self.shape), np.uint8)
        failures: list[Failure] = []
        start = 0
        for decoded, bad in self._read_in_chunks(CHUNK, np.arange(len(self)), workers):
            pixels[start : start + len(decoded)] = decoded
            failures += bad
            start += len(decoded)
        return Images(self._all_read(pixels, failures), self.labels)

    def in_memory(self, workers: int = 0) -> "ArrayDataset":
        """Decode everything once, for data sets that fit and are read many times."""
        dataset = ArrayDataset(self.images(workers).pixels)
        dataset._describe_as(self)
        dataset.decodes = False
        return dataset

    def without_failures(self, workers: int = 0) -> "Dataset":
        """Decode everything once, and leave out the images that cannot be read, with a warning."""
        everything = np.arange(len(self))
        failures: list[Failure] = []
        for _, bad in self._read_in_chunks(CHUNK, everything, workers):
            failures += bad
        if not failures:
            return self
        if len(failures) == len(self):
            raise DataError(describe(failures, len(self), self.what))
        warnings.warn(f"skipped: {describe(failures, len(self), self.what)}", CapspoeWarning, stacklevel=3)
        unreadable = {failure.name for failure in failures}
        readable = [name not in unreadable for name in self.names(everything)]
        return Subset(self, np.flatnonzero(readable))

    def fingerprint(self) -> str:
        """Return a SHA-256 of the number of images, their shape and their pixels.

        Large data sets, and those verified by checksums, are sampled at evenly spaced images.
        """
        digest = hashlib.sha256(json.dumps([len(self), self.shape]).encode())
        whole = self.nbytes <= MAX_HASHED and not self.verified
        count = len(self) if whole else CHUNK
        for pixels in self.batches(CHUNK, evenly_spaced(len(self), count)):
            digest.update(pixels.tobytes())
        return digest.hexdigest()

    def sample_fingerprint(self) -> str:
        """Return a SHA-256 of the number of images and of 64 evenly spaced ones, which is quick for any data set."""
        content = f"{len(self)} {self.spread(64).fingerprint()}"
        return hashlib.sha256(content.encode()).hexdigest()

    def _read_in_chunks(self, size: int, indices: NDArray[np.int64], workers: int) -> Iterator[Read]:
        """Read `size` images at a time, in order; workers read a few chunks ahead."""
        if workers < 0:
            raise InputError(f"workers is {workers}; it must be 0 or more")
        chunks = (indices[start : start + size] for start in range(0, len(indices), size))
        if workers == 0:
            yield from map(self.read, chunks)
            return
        pool = ThreadPoolExecutor(workers)
        try:
            pending = deque(pool.submit(self.read, chunk) for chunk in islice(chunks, AHEAD * workers))
            while pending:
                result = pending.popleft().result()
                # The caller works on this chunk while the workers read the next one.
                pending.extend(pool.submit(self.read, chunk) for chunk in islice(chunks, 1))
                yield result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _describe_as(self, other: "Dataset") -> None:
        for name in DESCRIPTION:
            setattr(self, name, getattr(other, name))

    def labelled_as(self, other: "Dataset") -> "Dataset":
        """This data set with the labels of another, which has the same images."""
        self.labels = other.labels
        self.classes = other.classes
        return self

    def _all_read(self, pixels: Pixels, failures: Sequence[Failure]) -> Pixels:
        if failures:
            advice = "repair or remove them"
            if self.skippable:
                advice += ", or use --skip-bad"
            raise DataError(f"{describe(failures, len(pixels), self.what)}; {advice}")
        return pixels

    def _checked(self, indices: ArrayLike) -> NDArray[np.int64]:
        chosen = np.asarray(indices)
        if chosen.size == 0:
            return np.empty(0, np.int64)
        integers = chosen.ndim == 1 and chosen.dtype.kind in "iu"
        if not integers or chosen.min() < 0 or chosen.max() >= len(self):
            allowed = f"a list of integers from 0 to {len(self) - 1}"
            raise InputError(f"indices must be {allowed}, not {str(indices)[:60]}")
        return chosen.astype(np.int64)


class ArrayDataset(Dataset):
    """Images in an array (n, H, W, C), in memory or memory-mapped; `preprocess.pixel_scale` explains `scale`."""

    def __init__(
        self,
        array: NDArray[Any],
        labels: Labels = None,
        classes: Classes = None,
        *,
        scale: int = 1,
        prepare: Prepare | None = None,
    ) -> None:
        self._array = array
        self._scale = scale
        self._prepare = prepare
        height, width, channels = array.shape[1:]
        self.shape = (height, width, channels)
        if prepare:
            self.shape = prepare.shape(height, width, channels)
        self.labels = labels
        self.classes = classes

    def __len__(self) -> int:
        return len(self._array)

    def read(self, indices: NDArray[np.int64]) -> Read:
        pixels = as_uint8(self._array[indices], self._scale)
        if self._prepare:
            pixels = self._prepare.batch(pixels)
        return pixels, []


class Subset(Dataset):
    """Some images of another data set."""

    def __init__(self, dataset: Dataset, rows: NDArray[np.int64]) -> None:
        self._dataset = dataset
        self._rows = rows
        self._describe_as(dataset)
        if dataset.labels is not None:
            self.labels = dataset.labels[rows]
        if dataset.file_names is not None:
            self.file_names = dataset.names(rows)

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: NDArray[np.int64]) -> Read:
        return self._dataset.read(self._rows[indices])


def workers_for(dataset: Dataset) -> int:
    """Return how many threads to decode with: none for small data sets and images in memory."""
    from capspoe.distributed import local_world_size  # here, because it imports PyTorch

    cores = (os.cpu_count() or 1) // local_world_size()
    if not dataset.decodes or len(dataset) < 2000:
        return 0
    return max(1, min(4, cores))


def describe(failures: Sequence[Failure], count: int, what: str = "images") -> str:
    """Return one line that counts and names the images that cannot be read."""
    named = ", ".join(f"{failure.name} ({failure.reason})" for failure in failures[:MAX_LISTED])
    if len(failures) > MAX_LISTED:
        named += f" and {len(failures) - MAX_LISTED} more"
    return f"{len(failures)} of {count} {what} cannot be read: {named}"
