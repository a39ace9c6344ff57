"""Images that a Python object gives one by one: a list, an array, a PyTorch data set, anything with a length."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from capspoe.data.prepare import Prepare
from capspoe.data.source import Failure, Source
from capspoe.errors import DataError, InputError


class Sequence(Protocol):
    """What training needs of a collection of images: how many, and each by its number, always the same."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class SequenceSource(Source):
    """Images from `len(items)` and `items[k]`: uint8 of shape (H, W) or (H, W, C), all alike.

    An item may be a pair that begins with the image, as data sets of PyTorch give. Nothing is kept of what was
    read. With `decodes` worker processes read ahead, each with a pickled copy of `items`.
    """

    def __init__(self, items: Sequence, prepare: Prepare | None = None, *, decodes: bool = False) -> None:
        self._items, self._prepare, self.decodes = items, prepare or Prepare(), decodes
        try:
            self._count = len(items)
        except TypeError:
            raise InputError(
                f"images of type {type(items).__name__} have no length; give a path, or an object with "
                "len(images) and images[k]"
            ) from None
        if self._count == 0:
            raise InputError("there are no images")
        self._item_shape = self._item(0).shape
        self.shape = self._prepare.shape(*self._item_shape)
        self.labels, self.classes = None, None

    def __len__(self) -> int:
        return self._count

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[Failure]]:
        if len(indices) == 0:
            return np.empty((0, *self.shape), np.uint8), []
        pixels = np.empty((len(indices), *self._item_shape), np.uint8)
        for k, index in enumerate(indices):
            image = self._item(int(index))
            if image.shape != self._item_shape:
                raise DataError(
                    f"image {index} has shape {image.shape}, image 0 has {self._item_shape}; give them one size"
                )
            pixels[k] = image
        return self._prepare.batch(pixels), []

    def _item(self, index: int) -> NDArray[np.uint8]:
        item = self._items[index]
        image = np.asarray(item[0] if isinstance(item, tuple) else item)
        if image.ndim == 2:
            image = image[..., None]
        if image.dtype != np.uint8 or image.ndim != 3 or 0 in image.shape:
            raise DataError(
                f"image {index} has shape {image.shape} and type {image.dtype}; give uint8 arrays (H, W) or (H, W, C)"
            )
        return image
