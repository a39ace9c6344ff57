"""`capspoe encode`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from capspoe.commands.arguments import RunFolder, check_suffix, parse
from capspoe.config import Device

if TYPE_CHECKING:
    from capspoe.core.network import Encoded
    from capspoe.data import Dataset
    from capspoe.run.model import CapsulePoE

BLOCK = 1024  # images encoded at once


@dataclass(frozen=True)
class Encode:
    """Which capsule is on for each image, and its pose: on (n, J), hidden (n, J, N), labels if known."""

    run: RunFolder
    out: Path
    """x.npz"""
    images: tyro.conf.Positional[str | None] = None
    """A data set, folder, .npy or .npz (default: the run's own data)."""
    split: Literal["train", "test", "all"] = "test"
    """Which part of it."""
    device: Device = "auto"
    """Where to compute: auto takes a GPU if there is one."""


def encode(argv: list[str]) -> None:
    a = parse(Encode, "encode", argv)
    check_suffix(a.out, ".npz")
    import numpy as np

    from capspoe import data
    from capspoe.run import distributed
    from capspoe.run.atomic import npz_writer
    from capspoe.run.model import CapsulePoE

    with distributed.process_group():
        with distributed.fail_together():
            model = CapsulePoE.load(a.run, a.device)
            dataset = data.open_for(model.config, model.image, a.images, a.split)
        blocks = encoded_blocks(model, dataset)
        if not distributed.is_main():
            for _ in blocks:
                pass
            return
        on = []

        def hidden() -> Iterator[np.ndarray]:
            for block in blocks:
                on.append(block.on)
                yield block.hidden

        with npz_writer(a.out) as file:  # `hidden` is written block by block, in constant memory
            file.add_pieces("hidden", (len(dataset), *model.top.upper), np.float32, hidden())
            file.add("on", np.concatenate(on))
            if dataset.labels is not None:
                file.add("labels", dataset.labels)
    print(a.out)


def encoded_blocks(model: "CapsulePoE", dataset: "Dataset") -> Iterator["Encoded"]:
    """All images in order, a block at a time; the processes take turns."""
    import numpy as np

    from capspoe.run import distributed

    rank, world = distributed.rank(), distributed.world_size()
    blocks = np.split(np.arange(len(dataset)), range(BLOCK, len(dataset), BLOCK))
    mine = blocks[rank::world]
    pixels = dataset.batches(BLOCK, np.concatenate(mine)) if mine else iter(())
    for _ in range(0, len(blocks), world):
        own = next(pixels, None)
        for encoded in distributed.gather(None if own is None else model.encode(own)):
            if encoded is not None:
                yield encoded
