"""The codes of all training images, computed once and memory-mapped.

Stored as float16: a code is a probability, and its rounding (below .0005) is far below the sampling noise.

codes.npy is written in blocks, by all processes in turn; codes.json has the SHA-256 of every finished block. So any
number of processes can start, resume and finish the same file, with the same bytes.
"""

import hashlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from capspoe.core.network import Network
from capspoe.data import Dataset, workers_for
from capspoe.errors import RunError
from capspoe.run import distributed
from capspoe.run.atomic import disk_errors, remove_files, write_atomic
from capspoe.run.log import TrainingLog
from capspoe.training.loops import random_crop, to_tensor

BATCH = 512  # images encoded at once
BLOCK = 4 * BATCH  # images with one checksum
FILES = ("codes.json", "codes.npy")


@torch.no_grad()
def encode_pixels(network: Network, pixels: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Batches of uint8 images to batches of codes."""
    for batch in pixels:
        x = to_tensor(random_crop(batch, network.config.crop, None), network.device)
        yield network.autoencoder.encode(x).cpu().numpy().astype(np.float16)


def codes_in_memory(network: Network, pixels: np.ndarray) -> np.ndarray:
    """The codes of images (n, H, W, C), as float16."""
    batches = (pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH))
    none = np.empty((0, *network.autoencoder.capsules), np.float16)
    return np.concatenate([none, *encode_pixels(network, batches)])


def codes_in_folder(network: Network, dataset: Dataset, folder: Path, log: TrainingLog) -> np.ndarray:
    """The codes of a data set, memory-mapped; missing and damaged blocks are computed first."""
    path, shape = folder / "codes.npy", (len(dataset), *network.autoencoder.capsules)
    with distributed.fail_together():
        hashes = start_file(folder, shape) if distributed.is_main() else {}
    with distributed.fail_together():
        try:
            codes = np.load(path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise RunError(
                f"process {distributed.rank()} does not see {path}: all machines must share the run folder"
            ) from None
    hashes = intact_blocks(codes, distributed.broadcast_object(lambda: hashes))
    fill(network, dataset, codes, hashes, log)
    distributed.barrier()
    return np.load(path, mmap_mode="r", allow_pickle=False)  # what other machines wrote, too


def start_file(folder: Path, shape: tuple[int, int, int]) -> dict[int, str]:
    """Create codes.npy unless it exists; returns the checksums of the finished blocks."""
    path = folder / "codes.npy"
    try:
        described = json.loads((folder / "codes.json").read_text())
        existing = np.load(path, mmap_mode="r", allow_pickle=False)
        if existing.shape == shape and existing.dtype == np.float16 and existing.flags.c_contiguous:
            return {int(block): str(value) for block, value in described.items()}
    except Exception:  # a damaged header fails in a dozen ways, and all mean: start over
        pass
    with disk_errors(folder):
        remove_files(folder, *FILES)
        np.lib.format.open_memmap(path, "w+", np.float16, shape)
    return {}


def intact_blocks(codes: np.ndarray, hashes: dict[int, str]) -> dict[int, str]:
    """Blocks whose checksum still matches; each process checks some."""
    mine = list(hashes.items())[distributed.rank() :: distributed.world_size()]
    good = {block: value for block, value in mine if hash_of(codes, block) == value}
    return {block: value for part in distributed.gather(good) for block, value in part.items()}


def hash_of(codes: np.ndarray, block: int) -> str:
    return hashlib.sha256(codes[block * BLOCK : (block + 1) * BLOCK].data).hexdigest()


def fill(network: Network, dataset: Dataset, codes: np.ndarray, hashes: dict[int, str], log: TrainingLog) -> None:
    """Compute the missing blocks, the processes taking turns, and store their checksums."""
    missing = [block for block in range(-(-len(dataset) // BLOCK)) if block not in hashes]
    if missing:
        log.info("encoding the images")
    folder = log.folder
    world, count = distributed.world_size(), len(dataset)
    mine = missing[distributed.rank() :: world]
    rows = [np.arange(block * BLOCK, min((block + 1) * BLOCK, count)) for block in mine]
    pixels = dataset.batches(BATCH, np.concatenate(rows), workers_for(dataset)) if mine else iter(())
    batches = encode_pixels(network, pixels)
    # A file, because writing to a memory map of a full disk kills the process.
    with disk_errors(folder), (folder / "codes.npy").open("r+b") as file:
        for turn in range(-(-len(missing) // world)):
            written = {}
            for block, own in zip(mine[turn : turn + 1], rows[turn : turn + 1], strict=True):
                file.seek(codes.offset + own[0] * codes[0].nbytes)  # type: ignore[attr-defined]
                file.writelines(batch.tobytes() for batch in islice(batches, -(-len(own) // BATCH)))
                file.flush()
                written[block] = hash_of(codes, block)
            for part in distributed.gather(written):
                hashes.update(part)
            last = (turn + 1) * world >= len(missing)
            if log.save_due() or last:
                if distributed.is_main():
                    write_atomic(folder / "codes.json", json.dumps(hashes).encode())
                    if not last:
                        log.info(f"  {min(len(hashes) * BLOCK, count):,} of {count:,} images")
                log.saved()
