"""The protocol, and the two kinds of views: computed from the images, or given."""

import hashlib
from collections.abc import Callable
from typing import Protocol

import numpy as np
from jaxtyping import Float, UInt8
from sklearn.decomposition import PCA

from capspoe.data import ArrayDataset, Dataset, evenly_spaced, workers_for
from capspoe.errors import InputError
from capspoe.training.spectral import PCA_IMAGES, fit_pca

PIECE = 512  # images that a function gets at once

Images = UInt8[np.ndarray, "n H W C"] | Dataset
Function = Callable[[UInt8[np.ndarray, "n H W C"]], np.ndarray]  # images to features (n, ...)


def as_dataset(images: Images) -> Dataset:
    return images if isinstance(images, Dataset) else ArrayDataset(images)


class View(Protocol):
    """A point for each image; the neighbour graph joins images whose points are close."""

    def points(self, images: Images) -> np.ndarray:
        """The points (n, ...) of images in memory, uint8 (n, H, W, C), or of a data set that is read on demand."""
        ...


class Given:
    """Points that are known already, one for each image: its code, or a feature of your own."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def points(self, images: Images) -> np.ndarray:
        if len(self.array) != len(images):
            raise InputError(f"{len(self.array)} points were given for {len(images)} images")
        return self.array


class Features:
    """What a function computes from each image, in its leading principal components.

    Reads images in pieces and keeps only the components, so that a million images need no more memory than a million
    codes.

    Parameters
    ----------
    function : of some of the images, uint8 (n, H, W, C); returns (n, ...), such as `hog` or an embedding of your own
    seed : of the PCA
    """

    def __init__(self, function: Function, seed: int = 0) -> None:
        self.function = function
        self.seed = seed
        self.pca: PCA | None = None

    def fit(self, images: Images) -> "Features":
        """Find the principal components of images, so that the points of others can be compared with theirs."""
        dataset = as_dataset(images)
        rows = evenly_spaced(len(dataset), PCA_IMAGES)
        sample = [self._flat(pixels) for pixels in dataset.batches(PIECE, rows, workers_for(dataset))]
        self.pca = fit_pca(np.concatenate(sample), self.seed)
        return self

    def points(self, images: Images) -> Float[np.ndarray, "n D"]:
        """The points of images, in the components of those that the view was fitted to, or else in their own."""
        pca = self.pca or Features(self.function, self.seed).fit(images).pca
        assert pca is not None
        dataset = as_dataset(images)
        n = len(dataset)
        points = np.empty((n, pca.n_components_), np.float32)
        first: dict[bytes, int] = {}  # the first image of each digest
        original = np.empty(n, np.int64)
        start = 0
        for pixels in dataset.batches(PIECE, np.arange(n), workers_for(dataset)):
            points[start : start + len(pixels)] = pca.transform(self._flat(pixels))
            for number, image in enumerate(pixels, start):
                digest = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
                original[number] = first.setdefault(digest, number)
            start += len(pixels)
        # Rounding depends on an image's place in its piece, and copies must have equal points.
        return points[original]

    def _flat(self, pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n V"]:
        return np.asarray(self.function(pixels), np.float32).reshape(len(pixels), -1)


def raw_pixels(pixels: UInt8[np.ndarray, "n H W C"]) -> UInt8[np.ndarray, "n H W C"]:
    """The images themselves."""
    return pixels
