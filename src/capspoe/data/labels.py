"""Labels as the numbers 0, 1, 2, ..., with their names where they had some."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import DataError


def number_labels(labels: NDArray[Any], what: str) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Whole numbers stay as they are; text becomes the place of each name in the sorted names."""
    kind = labels.dtype.kind
    if kind in "US":
        names, numbers = np.unique(labels, return_inverse=True)
        texts = (name.decode(errors="replace") if isinstance(name, bytes) else str(name) for name in names)
        return numbers.reshape(-1).astype(np.int64), tuple(texts)
    if kind not in "buif":
        raise DataError(f"{what}: labels of type {labels.dtype}; give whole numbers or text")
    if kind == "f" and not (labels == np.floor(labels)).all():
        raise DataError(f"{what}: labels that are not whole numbers")
    if labels.min() < 0 or labels.max() > np.iinfo(np.int32).max:
        raise DataError(f"{what}: labels from {labels.min()} to {labels.max()}; they start at 0")
    return labels.astype(np.int64), None
