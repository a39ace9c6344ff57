"""Which images belong to the train and test split, and evenly spaced samples of images."""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import DataError

SPLITS = ("train", "test", "all")
TEST_FRACTION = 0.1


def split_rows(hashes: NDArray[np.uint64], split: str, path: str) -> NDArray[np.int64]:
    """Return the rows of a split; about one image in ten is in the test split.

    A hash of each image's name or position decides. So the split is the same on every machine, and an image keeps its
    split when others come or go. Two images or more fill both splits.
    """
    test = hashes < np.uint64(TEST_FRACTION * 2**64)
    # Few images may all fall on one side: the smallest hash is test, the largest train.
    if len(test) > 1 and not test.any():
        test[np.argmin(hashes)] = True
    if test.all():
        test[np.argmax(hashes)] = False
    if split == "test" and not test.any():
        raise DataError(f"{path}: a single image cannot be split; use the split 'all'")
    members = {"train": ~test, "test": test, "all": np.ones_like(test)}[split]
    return np.flatnonzero(members).astype(np.int64)


def hash_names(names: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return a uniform 64-bit hash of each name."""
    digests = (blake2b(name, digest_size=8).digest() for name in names)
    return np.fromiter((int.from_bytes(digest, "big") for digest in digests), "u8")


def hash_positions(count: int) -> NDArray[np.uint64]:
    """Return a uniform 64-bit hash of each position: the first `count` numbers of SplitMix64."""
    import torch  # here, because most uses of this package need no PyTorch

    from capspoe.model.noise import GOLDEN, mix64

    return mix64(torch.arange(1, count + 1) * GOLDEN).numpy().view(np.uint64)


def evenly_spaced(n: int, count: int) -> NDArray[np.int64]:
    """Return `count` evenly spaced indices below n, or all n if there are fewer."""
    return np.linspace(0, n - 1, min(n, count)).astype(np.int64)
