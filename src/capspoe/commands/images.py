"""How the commands that take images open them, and what they say about them."""

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from capspoe.errors import CapspoeWarning

if TYPE_CHECKING:
    import numpy as np

    from capspoe.data import Dataset, Likeness
    from capspoe.figures.summary import Summary
    from capspoe.run.model import CapsulePoE

MEASURED = 500  # test images of a run that say what is usual, unless its folder knows
NAMED = 3  # images that a warning names
# Share of an image's edges that its reconstruction may miss. By mnist-small, superposed digits have up to .75,
# framed noise has at least .9, clothes have .84 on average.
MOST_EDGES = 0.85


@dataclass
class Given:
    """Images of a command, and what is usual for its network."""

    dataset: "Dataset"
    own: bool  # whether they are images of the run's own data set
    summary: "Summary"
    likeness: "Likeness | None" = None
    dark: bool = False  # whether the network's objects are dark on light
    unlike: list[str] = field(default_factory=list)  # names of images that are unlike the run's

    def batches(self, size: int, title: str) -> "Iterator[np.ndarray]":
        """All images, uint8 (b, H, W, C), with a progress bar on a terminal."""
        from capspoe.commands.arguments import progress

        batches = -(-len(self.dataset) // size)
        yield from progress(self.dataset.batches(size), batches, title)

    def label(self, capsule: int) -> str | None:
        """The most common label of a capsule's images, if it is known."""
        label = self.summary.labels[capsule]
        return label[0] if label else None

    def note_errors(self, first: int, errors: "np.ndarray", edges: "np.ndarray | None" = None) -> list[bool]:
        """Whether images are unlike the run's, by the errors (b,) of their reconstructions; `first` is an index.

        Several objects together come near anything, noise too, but not to its edges: if the run's images have a plain
        background, the errors of the `edges` (b,) count too.
        """
        limit = self.summary.error
        if limit is None:
            return [False] * len(errors)
        flags = (errors > limit).tolist()
        if edges is not None and self.summary.object_size is not None:
            flags = ((errors > limit) | (edges > MOST_EDGES)).tolist()
        for k, flag in enumerate(flags):
            if flag:
                self.unlike += self.dataset.names([first + k])
        return flags

    def mostly_fitted(self) -> bool:
        """Whether most of the images that were read had to be scaled to the usual size of an object."""
        if self.likeness is None:
            return False
        tally = self.likeness.tally
        return tally.fitted > tally.images / 2

    def announce(self) -> None:
        """Say once, at the end, what was done to the images and which of them the network does not know."""
        if self.dataset.understood and not self.own:
            print(f"capspoe: {self.dataset.understood}", file=sys.stderr)
        total = len(self.dataset)
        if self.likeness and self.likeness.tally.inverted:
            count = f"{self.likeness.tally.inverted} of {total}"
            own = "dark on light" if self.dark else "light on dark"
            warn(f"inverted {count} images: the network was trained on objects that are {own}")
        if self.unlike and not self.own:
            named = ", ".join(self.unlike[:NAMED])
            if len(self.unlike) > NAMED:
                named += ", ..."
            count = f"{len(self.unlike)} of {total} images"
            warn(f"unlike what the network was trained on: {count} ({named}); its answers mean little there")


def warn(text: str) -> None:
    warnings.warn(text, CapspoeWarning, stacklevel=3)


def open_given_images(
    model: "CapsulePoE",
    run: Path,
    images: Sequence[str],
    split: str | None = None,
    limit: int | None = None,
    skip_bad: bool = False,
) -> Given:
    """The run's own images, or those that are named; pictures are made to look like the run's own.

    Only the first `limit` of them. With `skip_bad`, without those that cannot be read.
    """
    from capspoe.commands.arguments import open_for_run
    from capspoe.figures.summary import summary_of
    from capspoe.infer.polarity import Polarity

    summary = summary_of(model, run, MEASURED)
    likeness = None
    if images:
        likeness = likeness_of(model, summary)
    dataset = open_for_run(model, run, images, split, likeness)
    if limit is not None:
        dataset = dataset.first(limit)
    dataset.skippable = True
    if skip_bad and dataset.decodes:
        dataset = dataset.without_failures()
    if likeness is not None:
        likeness.tally.clear()  # of images that were read to see whether they can be
    return Given(dataset, not images, summary, likeness, Polarity.of_network(model).dark)


def likeness_of(model: "CapsulePoE", summary: "Summary") -> "Likeness | None":
    """How pictures are framed for networks of grey objects on a plain background; None for others."""
    from capspoe.data import Likeness
    from capspoe.data.drawings import frame
    from capspoe.infer.polarity import Polarity

    height, width, colours = model.image
    if colours != 1 or summary.object_size is None:
        return None
    size = summary.object_size
    polarity = Polarity.of_network(model)
    return Likeness(image=(height, width), frame=partial(frame, shape=(height, width), size=size, polarity=polarity))


def reconstruction_errors(model: "CapsulePoE", pixels: "np.ndarray") -> "np.ndarray":
    """The mean squared error of the reconstruction of each image, (b,)."""
    import numpy as np

    difference = model.reconstruct(pixels) - model.array(model.tensor(pixels))
    return np.square(difference).mean((1, 2, 3))


def edge_errors(images: "np.ndarray", reconstructions: "np.ndarray") -> "np.ndarray":
    """The share (b,) of the edges of images (b, H, W, C) that is missing or wrong in their reconstructions."""
    import numpy as np

    def energy(pictures: "np.ndarray") -> "np.ndarray":
        down = np.square(np.diff(pictures, axis=1)).sum((1, 2, 3))
        right = np.square(np.diff(pictures, axis=2)).sum((1, 2, 3))
        return np.asarray(down + right)

    return energy(images - reconstructions) / np.maximum(energy(images), 1e-9)


def name_capsule(given: Given, capsule: int) -> str:
    """'capsule 3 (mostly 7)'."""
    label = given.label(capsule)
    return f"capsule {capsule}" if label is None else f"capsule {capsule} (mostly {label})"


def print_rows(table: dict[str, list[object]], most: int) -> None:
    """Print the first rows of a table of columns."""
    widths = {}
    for column, values in table.items():
        widths[column] = max([len(column), *(len(str(value)) for value in values[:most])])
    print("  ".join(f"{column:>{width}}" for column, width in widths.items()))
    for row in list(zip(*table.values(), strict=True))[:most]:
        print("  ".join(f"{value!s:>{width}}" for value, width in zip(row, widths.values(), strict=True)))
    hidden = len(next(iter(table.values()))) - most
    if hidden > 0:
        print(f"... and {hidden} more; --out x.csv has all")
