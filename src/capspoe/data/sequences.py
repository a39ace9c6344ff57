"""Images from Python objects: lists, arrays, PyTorch data sets."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from capspoe.data.datasets import COLOURS, Dataset, Pixels, Read
from capspoe.data.preprocess import Prepare, as_uint8
from capspoe.errors import DataError, InputError


class MapStyle(Protocol):
    """PyTorch's map-style data set: a length, and an item for each index, always the same."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class SequenceDataset(Dataset):
    """Images from a list, an array, a PyTorch data set or any other object with `len(items)` and `items[k]`.

    Parameters
    ----------
    items : gives images (H, W), (H, W, C) or (C, H, W) of one shape, uint8, bool or float in [0, 1], as arrays,
        tensors or Pillow images; or tuples that start with one
    prepare : how to preprocess them
    decodes : whether threads should read ahead
    """

    def __init__(self, items: MapStyle, prepare: Prepare | None = None, *, decodes: bool = False) -> None:
        self._items = items
        self._prepare = prepare or Prepare()
        self.decodes = decodes
        if not hasattr(items, "__len__") or not hasattr(items, "__getitem__"):
            kind = type(items).__name__
            advice = "give a path, or an object with len(images) and images[k]"
            raise InputError(f"images of type {kind}: {advice}")
        if len(items) == 0:
            raise InputError("there are no images")
        self._item_shape = self._item(0).shape
        self.shape = self._prepare.shape(*self._item_shape)

    def __len__(self) -> int:
        return len(self._items)

    def read(self, indices: NDArray[np.int64]) -> Read:
        images = [self._item(index) for index in indices.tolist()]
        for k, image in zip(indices, images, strict=True):
            if image.shape != self._item_shape:
                first = f"image 0, {self._item_shape}"
                raise DataError(f"image {k} has another shape than {first}; resize it")
        return self._prepare.batch(np.stack(images)), []

    def _item(self, index: int) -> Pixels:
        item = self._items[index]
        if isinstance(item, tuple):  # an image and its label, usually
            item = item[0]
        if hasattr(item, "detach"):  # a tensor, perhaps with gradients or on a GPU
            item = item.detach().cpu()
        image = np.asarray(item)
        if image.ndim == 2:
            image = image[..., None]
        is_pixels = image.dtype in (np.uint8, np.bool_) or image.dtype.kind == "f"
        if not is_pixels or image.ndim != 3 or 0 in image.shape:
            self._refuse(index, image)
        # PyTorch's data sets have the channels first.
        if image.shape[-1] not in COLOURS and image.shape[0] in COLOURS:
            image = image.transpose(1, 2, 0)
        if image.dtype == np.uint8:
            return image
        if not (image.min() >= 0 and image.max() <= 1):
            raise DataError(
                f"image {index} has values from {image.min():g} to {image.max():g}; floats must be in [0, 1]"
            )
        return as_uint8(image, 255)

    @staticmethod
    def _refuse(index: int, image: NDArray[Any]) -> None:
        kind = f"shape {image.shape} and type {image.dtype}"
        allowed = "(H, W), (H, W, C) or (C, H, W), uint8 or float in [0, 1]"
        raise DataError(f"image {index} has {kind}; give arrays {allowed}")
