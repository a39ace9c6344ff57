"""A source of images: random access by index, be they in memory, in a mapped file or in a folder."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from capspoe.data.images import Images, even_choice
from capspoe.data.prepare import Prepare
from capspoe.data.values import as_bytes
from capspoe.data.workers import map_in_order
from capspoe.errors import DataError, InputError

CHUNK = 256
NAMED = 5


class Failure(NamedTuple):
    """An image that cannot be read."""

    position: int
    name: str
    reason: str


class Source(ABC):
    """Images with a fixed order, of one shape, decoded when asked for. Picklable without the pixels of files.

    `shape` is (H, W, C); `labels` int64 (n,) or None; `classes` names the labels where names are known;
    `skipped` lists what was left out because it cannot be read.
    """

    shape: tuple[int, int, int]
    labels: NDArray[np.int64] | None
    classes: tuple[str, ...] | None
    skipped: tuple[Failure, ...] = ()
    decodes: bool = False  # reading means decoding files, so that worker processes help

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[Failure]]:
        """The images at these indices, and those among them that could not be read (left black)."""

    @property
    def nbytes(self) -> int:
        """What all the images take in memory once decoded."""
        return len(self) * int(np.prod(self.shape))

    def batch(self, indices: ArrayLike) -> NDArray[np.uint8]:
        """The images at these indices, uint8 (len(indices), H, W, C)."""
        chosen = self._checked(indices)
        pixels, failures = self.read(chosen)
        refuse(failures, len(chosen))
        return pixels

    def batches(
        self, batch_size: int, order: ArrayLike | None = None, workers: int = 0
    ) -> Iterator[NDArray[np.uint8]]:
        """The images in `order` (default: all, as they stand), `batch_size` at a time, at last perhaps fewer.

        With `workers` that many processes decode ahead, a bounded number of batches, in the same order.
        """
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; it is at least 1")
        chosen = self._checked(np.arange(len(self)) if order is None else order)
        return self._batches(_chunks(chosen, batch_size), workers)

    def first(self, count: int) -> "Source":
        """The first `count` images, or all if there are not as many."""
        return self if count >= len(self) else Selection(self, np.arange(count))

    def some(self, count: int) -> "Source":
        """An even choice of `count` images, or all if there are not as many."""
        return self if count >= len(self) else Selection(self, even_choice(len(self), count))

    def images(self, workers: int = 0) -> Images:
        """Everything, decoded into memory."""
        pixels, failures = self._decode_all(workers)
        refuse(failures, len(self))
        return Images(pixels, self.labels)

    def readable_images(self, workers: int = 0) -> tuple[Images, list[Failure]]:
        """Everything that can be read, decoded into memory, and what cannot."""
        pixels, failures = self._decode_all(workers)
        if not failures:
            return Images(pixels, self.labels), []
        keep = self._without(failures)
        return Images(pixels[keep], None if self.labels is None else self.labels[keep]), failures

    def in_memory(self, workers: int = 0) -> "ArraySource":
        """The same images, decoded once: for sets that fit, and are gone through many times."""
        pixels, labels = self.images(workers)
        source = ArraySource(partial(_itself, pixels), labels, self.classes)
        source.skipped = self.skipped
        return source

    def failures(self, workers: int = 0) -> list[Failure]:
        """Decodes everything once and says what cannot be read."""
        return [failure for _, (_, bad) in self._read_all(workers) for failure in bad]

    def _without(self, failures: Sequence[Failure]) -> NDArray[np.int64]:
        """The indices that remain; an error when none do."""
        keep = np.delete(np.arange(len(self)), [failure.position for failure in failures])
        if len(keep) == 0:
            raise DataError(describe(failures, len(self)))
        return keep

    def _decode_all(self, workers: int) -> tuple[NDArray[np.uint8], list[Failure]]:
        pixels = np.empty((len(self), *self.shape), np.uint8)
        failures: list[Failure] = []
        for chunk, (decoded, bad) in self._read_all(workers):
            pixels[chunk] = decoded
            failures += bad
        return pixels, failures

    def _read_all(
        self, workers: int
    ) -> Iterator[tuple[NDArray[np.int64], tuple[NDArray[np.uint8], list[Failure]]]]:
        chunks = list(_chunks(np.arange(len(self)), CHUNK))
        return zip(chunks, map_in_order(self.read, chunks, workers), strict=True)

    def _batches(self, chunks: Iterator[NDArray[np.int64]], workers: int) -> Iterator[NDArray[np.uint8]]:
        for pixels, failures in map_in_order(self.read, chunks, workers):
            refuse(failures, len(pixels))
            yield pixels

    def _checked(self, indices: ArrayLike) -> NDArray[np.int64]:
        chosen = np.asarray(indices)
        if chosen.size == 0:
            return np.empty(0, np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError(
                f"indices of shape {chosen.shape} and type {chosen.dtype}; give a list of integers"
            )
        if chosen.min() < 0 or chosen.max() >= len(self):
            raise InputError(
                f"indices from {chosen.min()} to {chosen.max()}; there are images 0 to {len(self) - 1}"
            )
        return chosen.astype(np.int64)


class ArraySource(Source):
    """Images in an array, in memory or mapped from a file.

    `opener` gives the array (n, H, W, C). It is called again in another process, so that pickling the source
    copies a path rather than the pixels.
    """

    def __init__(
        self,
        opener: Callable[[], NDArray[Any]],
        labels: NDArray[np.int64] | None = None,
        classes: tuple[str, ...] | None = None,
        *,
        rows: NDArray[np.int64] | None = None,
        scale: int = 1,
        prepare: Prepare | None = None,
    ) -> None:
        self._opener, self._rows, self._scale = opener, rows, scale
        self._prepare = prepare or Prepare()
        self._array = opener()
        height, width, channels = self._array.shape[1:]
        self.shape = self._prepare.shape(height, width, channels)
        self.labels, self.classes = labels, classes

    def __len__(self) -> int:
        return len(self._array) if self._rows is None else len(self._rows)

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[Failure]]:
        if len(indices) == 0:
            return np.empty((0, *self.shape), np.uint8), []
        rows = indices if self._rows is None else self._rows[indices]
        return self._prepare.batch(as_bytes(self._array[rows], self._scale)), []

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_array"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._array = self._opener()


class Selection(Source):
    """Some images of another source."""

    def __init__(self, source: Source, rows: NDArray[np.int64]) -> None:
        self._source, self._rows = source, rows
        self.shape, self.classes, self.decodes = source.shape, source.classes, source.decodes
        self.skipped = source.skipped
        self.labels = None if source.labels is None else source.labels[rows]

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[Failure]]:
        pixels, failures = self._source.read(self._rows[indices])
        place = dict(zip(self._rows[indices].tolist(), indices.tolist(), strict=True))
        return pixels, [failure._replace(position=place[failure.position]) for failure in failures]


def describe(failures: Sequence[Failure], count: int) -> str:
    """One line that counts and names what cannot be read."""
    named = ", ".join(f"{failure.name} ({failure.reason})" for failure in failures[:NAMED])
    more = f" and {len(failures) - NAMED} more" if len(failures) > NAMED else ""
    return f"{len(failures)} of {count} images cannot be read: {named}{more}"


def refuse(failures: Sequence[Failure], count: int) -> None:
    if failures:
        raise DataError(f"{describe(failures, count)}; mend or remove them, or skip them with --skip-bad")


def _chunks(indices: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    return (indices[start : start + size] for start in range(0, len(indices), size))


def _itself(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return array
