"""The binary layout of CIFAR-10: per image one label byte, then 32x32 bytes each of red, green and blue."""

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import DataError

SIDE, CHANNELS, CLASSES = 32, 3, 10
RECORD = 1 + CHANNELS * SIDE * SIDE


def decode_cifar(data: bytes, what: str = "CIFAR data") -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (n, 32, 32, 3) and labels (n,) from the bytes of a batch file; `what` names it in errors."""
    if len(data) == 0 or len(data) % RECORD:
        raise DataError(f"{what}: {len(data)} bytes are not a whole number of {RECORD}-byte images")
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= CLASSES:
        bad = int(np.argmax(labels >= CLASSES))
        raise DataError(f"{what}: image {bad} has label {labels[bad]}; CIFAR-10 has labels 0 to 9")
    planes = records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels


def encode_cifar(pixels: NDArray[np.uint8], labels: NDArray[np.integer]) -> bytes:
    """The bytes of the batch file that holds these images."""
    records = np.empty((len(pixels), RECORD), np.uint8)
    records[:, 0] = labels
    records[:, 1:] = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return records.tobytes()
