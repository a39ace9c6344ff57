"""Which numbers an array of images holds, and how they become bytes. Nothing is clipped or guessed."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import DataError

BLOCK = 1 << 24  # values looked at in one go, so that a mapped file is never wholly in memory
SAMPLE = 256


def scale_of(values: NDArray[Any], what: str) -> int:
    """The factor that brings values to 0..255: floats lie in [0, 1] or [0, 255], integers in 0..255."""
    kind = values.dtype.kind
    if kind == "b":
        return 255
    if kind not in "uif":
        raise DataError(f"{what}: values of type {values.dtype} are not pixels; give uint8 or floats")
    if values.dtype == np.uint8 and _has_bright(values):
        return 1
    low, high = _range(values, what)
    if low < 0 or high > 255:
        allowed = "[0, 1] or [0, 255]" if kind == "f" else "0 to 255"
        raise DataError(f"{what}: values from {low:g} to {high:g}; pixels lie in {allowed}")
    if kind == "f":
        return 255 if high <= 1 else 1
    if high == 1:
        raise DataError(f"{what}: integers that are only 0 and 1; save black and white images as bool")
    return 1


def as_bytes(values: NDArray[Any], scale: int) -> NDArray[np.uint8]:
    """Values as uint8, given their factor."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        return np.rint(values.astype(np.float32, copy=False) * np.float32(scale)).astype(np.uint8)
    return values.astype(np.uint8) * np.uint8(scale)


def _has_bright(values: NDArray[Any]) -> bool:
    """Whether a few images spread over the whole already show more than 0 and 1."""
    step = max(1, len(values) // SAMPLE)
    return bool((values[::step][:SAMPLE] > 1).any())


def _range(values: NDArray[Any], what: str) -> tuple[float, float]:
    low, high = np.inf, -np.inf
    for block in _blocks(values):
        if values.dtype.kind == "f" and not np.isfinite(block).all():
            raise DataError(f"{what}: some values are not finite (NaN or infinity)")
        low, high = min(low, float(block.min())), max(high, float(block.max()))
    return low, high


def _blocks(values: NDArray[Any]) -> Iterator[NDArray[Any]]:
    rows = max(1, BLOCK * len(values) // values.size)
    return (values[start : start + rows] for start in range(0, len(values), rows))
