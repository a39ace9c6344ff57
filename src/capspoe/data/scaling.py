"""Rows of any numbers as images in [0, 1] and back, for the estimator."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import InputError

BLOCK = 1024  # rows scaled at once, so that no full copy in another dtype is made


class Range(NamedTuple):
    """The values that become 0 and 1: two numbers, or two for each feature."""

    low: Any
    high: Any

    def scaled(self, rows: np.ndarray, shape: tuple[int, int, int]) -> Iterator[NDArray[np.float32]]:
        """Rows as images in [0, 1], a block at a time; values outside the range are clipped."""
        # A feature that never varies has no span to divide by.
        varies = np.asarray(self.high) > self.low
        span = np.where(varies, np.subtract(self.high, self.low), 1.0)
        for start in range(0, len(rows), BLOCK):
            block = np.clip((rows[start : start + BLOCK] - self.low) / span, 0, 1)
            yield block.astype(np.float32).reshape(-1, *shape)

    def original(self, images: np.ndarray) -> NDArray[np.float32]:
        """The inverse of `scaled`: flat rows on their original scale."""
        rows = images.reshape(len(images), -1) * np.subtract(self.high, self.low)
        return (self.low + rows).astype(np.float32)


def find_range(rows: np.ndarray, wanted: tuple[float, float] | Literal["auto"], images: bool) -> Range:
    """The requested range, or that of the rows: of all pixels, or of each feature."""
    if not isinstance(wanted, str):
        low = float(wanted[0])
        high = float(wanted[1])
        if not low < high:
            raise InputError(f"value_range must rise from low to high, not {wanted!r}")
        return Range(low, high)
    if wanted != "auto":
        raise InputError(f"value_range must be 'auto' or (low, high), not {wanted!r}")
    if not images:
        return Range(rows.min(0).astype(np.float64), rows.max(0).astype(np.float64))
    if rows.dtype == np.uint8:
        return Range(0.0, 255.0)
    low = float(rows.min())
    high = float(rows.max())
    if low >= 0 and high <= 1:
        return Range(0.0, 1.0)
    return Range(low, high)


def with_channels(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(H, W) or (H, W, C) as (H, W, C)."""
    if len(shape) not in (2, 3) or 0 in shape:
        raise InputError(f"images must have shape (H, W) or (H, W, C), not {tuple(shape)}")
    height, width, channels = (*shape, 1)[:3]
    return int(height), int(width), int(channels)
