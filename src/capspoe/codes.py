"""The codes of all training images, computed once and read from a memory-mapped file.

Stored as float16: a code is a probability, and its rounding (below 0.0005) is far below the noise that the
energy model draws from it.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.checkpoint import write_atomically, writing


def write_codes(folder: Path, shape: tuple[int, int, int], chunks: Iterator[np.ndarray]) -> None:
    """Write the chunks one after the other; the file counts only once its description stands beside it."""
    with writing(folder):
        (folder / "codes.json").unlink(missing_ok=True)
        array = np.lib.format.open_memmap(folder / "codes.npy", "w+", np.float16, shape)
    start = 0
    for chunk in chunks:
        with writing(folder):
            array[start : start + len(chunk)] = chunk
        start += len(chunk)
    with writing(folder):
        array.flush()
        description = {"shape": list(shape), "sha256": _hash(folder / "codes.npy")}
        write_atomically(folder / "codes.json", json.dumps(description).encode())


def open_codes(folder: Path, shape: tuple[int, int, int]) -> np.ndarray | None:
    """The codes, memory-mapped, or None when they are not there or not whole."""
    try:
        description = json.loads((folder / "codes.json").read_text())
        if description["shape"] != list(shape) or description["sha256"] != _hash(folder / "codes.npy"):
            return None
        return np.load(folder / "codes.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def code_batch(codes: np.ndarray, index: np.ndarray, device: torch.device) -> Float[Tensor, "B I M"]:
    return torch.from_numpy(codes[index]).to(device).float()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
