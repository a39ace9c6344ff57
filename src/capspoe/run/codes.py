"""The codes of all training images, computed once and memory-mapped.

Stored as float16: a code is a probability, and its rounding (below .0005) is far below the
sampling noise.

codes.npy is complete when codes.json has its checksum. The processes take turns at batches of a
fixed size, so that any number of them writes the same bytes.
"""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from capspoe import distributed
from capspoe.atomic import disk_errors, write_atomic
from capspoe.data import Dataset, workers_for
from capspoe.errors import RunError
from capspoe.model.network import Network
from capspoe.run.checkpoint import hashes_of
from capspoe.run.log import TrainingLog
from capspoe.training.codes import BATCH, encode_pixels

FILES = ("codes.json", "codes.npy")


def codes_in_folder(network: Network, dataset: Dataset, folder: Path, log: TrainingLog) -> np.ndarray:
    """The codes of a data set, memory-mapped; computed first unless an intact file is there."""
    path = folder / "codes.npy"
    shape = (len(dataset), *network.codec.capsules)
    if not distributed.broadcast_object(lambda: is_intact(folder, shape)):
        log.info("encoding the images")
        write_codes(network, dataset, path, shape, log)
        distributed.all_reduce_max(0)  # a barrier
        with distributed.fail_together():
            if distributed.is_main():
                write_atomic(folder / "codes.json", description(folder, shape))
    return np.load(path, mmap_mode="r", allow_pickle=False)


def description(folder: Path, shape: tuple[int, int, int]) -> bytes:
    return json.dumps({**hashes_of(folder, "codes.npy"), "shape": shape}).encode()


def is_intact(folder: Path, shape: tuple[int, int, int]) -> bool:
    """Whether codes.npy has codes of this shape and matches its checksum."""
    with suppress(OSError):
        return (folder / "codes.json").read_bytes() == description(folder, shape)
    return False


def write_codes(
    network: Network, dataset: Dataset, path: Path, shape: tuple[int, int, int], log: TrainingLog
) -> None:
    """Encode all images into one file; every process writes its batches."""
    with distributed.fail_together(), disk_errors(path.parent):
        if distributed.is_main():
            np.lib.format.open_memmap(path, "w+", np.float16, shape)
    with distributed.fail_together():
        if not path.exists():
            who = f"process {distributed.rank()} does not see {path.parent}"
            raise RunError(f"{who}: all machines must share the run folder")
    world = distributed.world_size()
    batches = np.split(np.arange(len(dataset)), range(BATCH, len(dataset), BATCH))
    mine = batches[distributed.rank() :: world]
    pixels: Iterator[np.ndarray] = iter(())
    if mine:
        pixels = dataset.batches(BATCH, np.concatenate(mine), workers_for(dataset))
    # The codes are at the end of the file, after the header of .npy, in two bytes each.
    start = path.stat().st_size - 2 * math.prod(shape)
    # Not through the memory map: on a full disk that kills the process.
    with disk_errors(path.parent), path.open("r+b") as file:
        encoded = zip(mine, encode_pixels(network, pixels), strict=True)
        # Every process makes the same number of rounds, because `save_due` is a collective call.
        for _ in range(0, len(batches), world):
            for rows, codes in islice(encoded, 1):
                file.seek(start + int(rows[0]) * codes[0].nbytes)
                file.write(codes.tobytes())
            if log.save_due():
                log.saved()
