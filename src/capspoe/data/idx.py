"""The idx format of MNIST and Fashion-MNIST: two zero bytes, a type, the rank, the sizes, then the values."""

import os
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capspoe.errors import DataError

UNSIGNED_BYTE = 0x08
MOST_AXES = 32  # that every NumPy has


def open_idx(path: Path) -> NDArray[np.uint8]:
    """The array in an idx file, mapped into memory rather than read."""
    try:
        with path.open("rb") as file:
            shape = _shape(file.read(_header_bytes(MOST_AXES)), os.fstat(file.fileno()).st_size, str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return np.memmap(path, np.uint8, mode="r", offset=_header_bytes(len(shape)), shape=shape)


def encode_idx(values: NDArray[np.uint8]) -> bytes:
    """The bytes of the idx file that holds an array."""
    header = bytes([0, 0, UNSIGNED_BYTE, values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return header + np.ascontiguousarray(values, np.uint8).tobytes()


def _header_bytes(rank: int) -> int:
    return 4 + 4 * rank


def _shape(head: bytes, size: int, what: str) -> tuple[int, ...]:
    """The sizes that a header promises, once they are known to fit the file exactly."""
    if len(head) < 4 or head[:2] != b"\0\0":
        raise DataError(f"{what}: not an idx file (it does not start with two zero bytes)")
    kind, rank = head[2], head[3]
    if kind != UNSIGNED_BYTE:
        raise DataError(f"{what}: an idx file of type 0x{kind:02x}; only unsigned bytes (0x08) are read")
    if not 1 <= rank <= MOST_AXES:
        raise DataError(f"{what}: an idx file of {rank} axes; 1 to {MOST_AXES} are read")
    if size < _header_bytes(rank):
        raise DataError(f"{what}: the idx header is cut short")
    shape = tuple(int(n) for n in np.frombuffer(head, ">u4", count=rank, offset=4))
    promised, there = prod(shape), size - _header_bytes(rank)
    if promised == 0:
        raise DataError(f"{what}: the idx header promises no values (sizes {shape})")
    if promised != there:
        raise DataError(f"{what}: the idx header promises {promised} bytes but {there} follow it")
    return shape
