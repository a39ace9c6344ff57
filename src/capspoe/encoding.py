"""What the capsules say of a whole set of images, written to a file."""

from pathlib import Path

import numpy as np

from capspoe import data, distributed
from capspoe.model import CapsulePoE, Encoded
from capspoe.npz import npz_writer


def open_for(model: CapsulePoE, images: str | None, split: str) -> data.Source:
    """Images as the network takes them: its own data, or others brought to its size and colours.

    Nothing is fetched: whoever looks at a run, perhaps somebody else's, does not go to the network by it.
    """
    c = model.config.data
    height, width, colours = model.image
    size = c.size if images is None else None if c.crop else (height, width)
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

    Of several processes each encodes its part and the first writes: whether this one did.
    """
    with distributed.joined():
        with distributed.together():
            model = CapsulePoE.load(run)
            source = open_for(model, images, split)
        rows = distributed.part(np.arange(len(source)))
        mine = [model.encode(pixels) for pixels in source.batches(1024, rows)]
        parts = [part for parts in distributed.gathered(mine) for part in parts]
        if not distributed.first():
            return False
    encoded = Encoded(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    with npz_writer(path) as file:
        file.add("on", encoded.on)
        file.add("hidden", encoded.hidden)
        if source.labels is not None:
            file.add("labels", source.labels)
    return True
