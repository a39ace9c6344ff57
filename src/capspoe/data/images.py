"""The result of `load`, and which images are taken: the split of those without one of their own, an even choice."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import DataError, InputError

SPLITS = ("train", "test", "all")
TEST_SHARE = 0.1


class Images(NamedTuple):
    """Pixels uint8 (n, H, W, C) and labels int64 (n,), or None where there are none."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64] | None


def check_split(split: str) -> None:
    if split not in SPLITS:
        raise InputError(f"split is {split!r}; it is train, test or all")


def split_rows(hashes: NDArray[np.uint64], split: str, what: str) -> NDArray[np.int64]:
    """The rows of a split, about one in ten being test, chosen by a hash of each image's name or position.

    So the choice is the same on every machine, does not follow any order in the data, and an image stays on
    its side when others come or go. Neither side is left empty as long as there are two images.
    """
    test = hashes < np.uint64(TEST_SHARE * 2**64)
    if len(test) > 1 and not test.any():
        test[np.argmin(hashes)] = True
    if test.all():
        test[np.argmax(hashes)] = False
    if split == "test" and not test.any():
        raise DataError(f"{what}: one image cannot be split; use the split 'all'")
    chosen = {"train": ~test, "test": test, "all": np.ones_like(test)}[split]
    return np.flatnonzero(chosen).astype(np.int64)


def even_choice(there: int, count: int) -> NDArray[np.int64]:
    """Positions of `count` of the things that are there, spread over all of them, or of all if they are fewer."""
    return np.linspace(0, there - 1, min(there, count)).astype(np.int64)


def hash_names(names: Iterable[bytes]) -> NDArray[np.uint64]:
    """A number for each name, spread evenly over 64 bits."""
    return np.fromiter((int.from_bytes(blake2b(name, digest_size=8).digest(), "big") for name in names), "u8")


def hash_positions(count: int) -> NDArray[np.uint64]:
    """A number for each position, spread evenly over 64 bits: the splitmix64 generator's outputs."""
    z = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
