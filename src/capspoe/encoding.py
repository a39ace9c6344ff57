"""What the capsules say of a whole set of images, written to a file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capspoe import data, distributed
from capspoe.model import CapsulePoE, Encoded
from capspoe.npz import npz_writer

BLOCK = 1024  # images read and encoded at once


def open_for(model: CapsulePoE, images: str | None, split: str) -> data.Source:
    """Images as the network takes them: its own data, or others brought to its size and colours.

    Nothing is fetched: whoever looks at a run, perhaps somebody else's, does not go to the network by it.
    """
    c = model.config.data
    height, width, colours = model.image
    size = c.size if images is None or c.crop else (height, width)
    return data.open_source(
        images or c.data,
        split,
        size=size,
        crop=c.crop and (height, width),
        colour={1: "grey", 3: "rgb"}.get(colours),
        skip_bad=c.skip_bad,
        offline=True,
    )


def write_encoded(run: Path, path: Path, images: str | None = None, split: str = "test") -> bool:
    """on (n, J), hidden (n, J, N) and labels (n,) where there are any, as an .npz.

    Of several processes each encodes some of the images and the first writes: whether this one did. `hidden` goes to
    the file block by block; only `on`, a few bytes an image, waits in memory for its turn.
    """
    with distributed.joined():
        with distributed.together():
            model = CapsulePoE.load(run)
            source = open_for(model, images, split)
        blocks = encoded_blocks(model, source)
        if not distributed.first():
            for _ in blocks:
                pass
            return False
        on = []

        def hidden() -> Iterator[np.ndarray]:
            for block in blocks:
                on.append(block.on)
                yield block.hidden

        with npz_writer(path) as file:
            file.add_pieces("hidden", (len(source), *model.top.upper), np.float32, hidden())
            file.add("on", np.concatenate(on))
            if source.labels is not None:
                file.add("labels", source.labels)
    return True


def encoded_blocks(model: CapsulePoE, source: data.Source) -> Iterator[Encoded]:
    """What the capsules say of the images in their order, a block at a time; the processes take turns."""
    rank, world = distributed.rank(), distributed.world()
    blocks = np.split(np.arange(len(source)), range(BLOCK, len(source), BLOCK))
    mine = blocks[rank::world]
    pixels = source.batches(BLOCK, np.concatenate(mine)) if mine else iter(())
    for _ in range(0, len(blocks), world):
        own = next(pixels, None)
        for encoded in distributed.gathered(None if own is None else model.encode(own)):
            if encoded is not None:
                yield encoded
