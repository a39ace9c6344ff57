"""The codes of all training images, computed once and read from a memory-mapped file.

Stored as float16: a code is a probability, and its rounding (below 0.0005) is far below the noise that the
energy model draws from it.

codes.npy is written block by block, by all processes in turn; codes.json has the SHA-256 of the blocks that are
whole. So any number of processes can start, resume and finish the same file, and it has the same bytes.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe import distributed
from capspoe.durable import remove_files, write_atomically, writing
from capspoe.errors import RunError
from capspoe.journal import Journal

BATCH = 512  # images encoded at once
BLOCK = 4 * BATCH  # images whose codes are checked as one

Encode = Callable[[np.ndarray], Iterator[np.ndarray]]  # rows to their codes, BATCH at a time


class Layout(NamedTuple):
    """Where the codes of each block stand in codes.npy."""

    shape: tuple[int, int, int]
    header: int  # bytes before the first code

    @property
    def row(self) -> int:
        return 2 * self.shape[1] * self.shape[2]

    @property
    def blocks(self) -> range:
        return range(-(-self.shape[0] // BLOCK))

    def rows(self, block: int) -> np.ndarray:
        return np.arange(block * BLOCK, min((block + 1) * BLOCK, self.shape[0]))

    def hash(self, file: IO[bytes], block: int) -> str:
        rows = self.rows(block)
        file.seek(self.header + rows[0] * self.row)
        return hashlib.sha256(file.read(len(rows) * self.row)).hexdigest()


def prepared(folder: Path, shape: tuple[int, int, int], encode: Encode, journal: Journal) -> np.ndarray:
    """The codes, memory-mapped, once every block is there and whole."""
    path = folder / "codes.npy"
    with distributed.together():
        hashes = start_file(folder, shape) if distributed.first() else {}
    with distributed.together():
        try:
            file = path.open("r+b")
        except FileNotFoundError:
            raise RunError(f"process {distributed.rank()} does not see {path}: the run folder must be "
                           "on a disk that all machines share") from None  # fmt: skip
    with writing(folder), file:
        layout = Layout(shape, path.stat().st_size - shape[0] * 2 * shape[1] * shape[2])
        hashes = whole(file, layout, distributed.of_first(lambda: hashes))
        missing = [block for block in layout.blocks if block not in hashes]
        if missing:
            journal.say("encoding the images")
            fill(file, layout, missing, hashes, encode, folder, journal)
    distributed.wait()
    return np.load(path, mmap_mode="r", allow_pickle=False)


def start_file(folder: Path, shape: tuple[int, int, int]) -> dict[int, str]:
    """Make room for the codes, unless there is; the hashes of the blocks that an earlier run wrote."""
    path = folder / "codes.npy"
    try:
        described = json.loads((folder / "codes.json").read_text())
        there = np.load(path, mmap_mode="r", allow_pickle=False)
        if described["shape"] == list(shape) and there.shape == shape and there.dtype == np.float16:
            return {int(block): str(value) for block, value in described["sha256"].items()}
    except Exception:  # a damaged header is wrong in a dozen ways, and all mean: compute them again
        pass
    with writing(folder):
        remove(folder)
        np.lib.format.open_memmap(path, "w+", np.float16, shape)
    return {}


def whole(file: IO[bytes], layout: Layout, hashes: dict[int, str]) -> dict[int, str]:
    """Those of the blocks that still are what they were when written; each process looks at some."""
    mine = [
        block for block in list(hashes)[distributed.rank() :: distributed.world()] if block in layout.blocks
    ]
    good = {block: hashes[block] for block in mine if layout.hash(file, block) == hashes[block]}
    return {block: value for part in distributed.gathered(good) for block, value in part.items()}


def fill(
    file: IO[bytes],
    layout: Layout,
    missing: list[int],
    hashes: dict[int, str],
    encode: Encode,
    folder: Path,
    journal: Journal,
) -> None:
    """Write the missing blocks, the processes taking turns, and describe them in codes.json."""
    rank, world = distributed.rank(), distributed.world()
    mine = missing[rank::world]
    codes = encode(np.concatenate([layout.rows(block) for block in mine])) if mine else iter(())
    for turn in range(0, len(missing), world):
        written = {}
        for block in missing[turn : turn + world][rank : rank + 1]:
            file.seek(layout.header + block * BLOCK * layout.row)
            for chunk in islice(codes, -(-len(layout.rows(block)) // BATCH)):
                file.write(chunk.astype(np.float16).tobytes())
            file.flush()
            written[block] = layout.hash(file, block)
        for part in distributed.gathered(written):
            hashes.update(part)
        last = turn + world >= len(missing)
        if journal.save_due() or last:
            if distributed.first():
                description = {"shape": list(layout.shape), "sha256": hashes}
                write_atomically(folder / "codes.json", json.dumps(description).encode())
                if not last:
                    journal.say(f"  {min(len(hashes) * BLOCK, layout.shape[0]):,} of {layout.shape[0]:,}")
            journal.saved()


def remove(folder: Path) -> None:
    remove_files(folder, "codes.json", "codes.npy")


def code_batch(codes: np.ndarray, index: np.ndarray, device: torch.device) -> Float[Tensor, "B I M"]:
    return torch.from_numpy(codes[index]).to(device).float()
