"""A folder of images as a source: listed once, decoded when asked for."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capspoe.data.decode import BadImage, Probe, decode, probe
from capspoe.data.images import even_choice, hash_names, split_rows
from capspoe.data.listing import Listing, list_images
from capspoe.data.prepare import Prepare
from capspoe.data.source import Failure, Source
from capspoe.errors import DataError

PROBES = 256
LARGEST_KEPT = 64
PAPER_SIZE = (28, 28)


class FolderSource(Source):
    """The images at some rows of a listing; `prepare` has a size and a colour."""

    decodes = True

    def __init__(
        self,
        root: Path,
        listing: Listing,
        rows: NDArray[np.int64],
        labels: NDArray[np.int64] | None,
        classes: tuple[str, ...] | None,
        prepare: Prepare,
    ) -> None:
        assert prepare.size
        self._root, self._listing, self._rows, self._prepare = root, listing, rows, prepare
        self.labels, self.classes = labels, classes
        self.shape = prepare.shape(*prepare.size, 1)

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, index: int) -> str:
        """The path of an image, relative to the folder."""
        return os.fsdecode(self._listing[int(self._rows[index])])

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[Failure]]:
        pixels = np.zeros((len(indices), *self.shape), np.uint8)
        failures = []
        for k, index in enumerate(indices):
            name = self.name(int(index))
            try:
                pixels[k] = decode(self._root / name, self._prepare)
            except BadImage as error:
                failures.append(Failure(int(index), name, str(error)))
        return pixels, failures

    def without(self, failures: Sequence[Failure]) -> "FolderSource":
        """The same folder, less what cannot be read."""
        keep = self._without(failures)
        labels = None if self.labels is None else self.labels[keep]
        rest = FolderSource(self._root, self._listing, self._rows[keep], labels, self.classes, self._prepare)
        rest.skipped = tuple(failures)
        return rest


def open_folder(root: Path, split: str, prepare: Prepare) -> FolderSource:
    """A folder's own `train` and `test` where it has both; else a split by the hash of the relative path."""
    root = root.absolute()
    listing = list_images(root)
    parts = {part: _under(root, listing, part) for part in ("train", "test")}
    if all(len(rows) for rows in parts.values()):
        parts["all"] = np.sort(np.concatenate(list(parts.values())))
        used, rows, depth = parts["all"], parts[split], 1
    elif len(listing):
        used, rows, depth = np.arange(len(listing)), split_rows(hash_names(listing), split, str(root)), 0
    else:
        raise DataError(f"{root}: no images in this folder (png, jpeg, tiff, webp, bmp, gif and others)")
    # Labels, size and colour come from all the images, so that every split has the same.
    classes, labels = _classes(listing, used, rows, depth)
    return FolderSource(root, listing, rows, labels, classes, _decided(root, listing, used, prepare))


def _under(root: Path, listing: Listing, part: str) -> NDArray[np.int64]:
    if not (root / part).is_dir():
        return np.empty(0, np.int64)
    prefix = part.encode() + b"/"
    return np.array([row for row, path in enumerate(listing) if path.startswith(prefix)], np.int64)


def _classes(
    listing: Listing, used: NDArray[np.int64], rows: NDArray[np.int64], depth: int
) -> tuple[tuple[str, ...] | None, NDArray[np.int64] | None]:
    """Names and labels from the sub-folder that each image is in; none if any image is in no sub-folder."""
    met: dict[bytes, int] = {}  # each name with the number of names met before it
    number_met = np.zeros(len(listing), np.int64)
    for row in used.tolist():
        folders = listing[row].split(b"/", depth + 1)
        if len(folders) < depth + 2:
            return None, None
        number_met[row] = met.setdefault(folders[depth], len(met))
    names = sorted(met)
    label = np.argsort([met[name] for name in names]).astype(np.int64)
    return tuple(os.fsdecode(name) for name in names), label[number_met[rows]]


def _decided(root: Path, listing: Listing, used: NDArray[np.int64], prepare: Prepare) -> Prepare:
    """Fills in what was not asked for, from the heads of a few hundred images spread over the folder.

    The size is theirs if it is the same for all and small, else the paper's; colour if any of them has it.
    """
    if prepare.size and prepare.colour:
        return prepare
    spread = used[even_choice(len(used), PROBES)]
    probes = [found for row in spread if (found := _probe(root / os.fsdecode(listing[row])))]
    sizes = {found.size for found in probes}
    common = len(sizes) == 1 and max(next(iter(sizes))) <= LARGEST_KEPT
    return replace(
        prepare,
        size=prepare.size or (sizes.pop() if common else PAPER_SIZE),
        colour=prepare.colour or ("rgb" if any(found.colour for found in probes) else "grey"),
    )


def _probe(path: Path) -> Probe | None:
    try:
        return probe(path)
    except BadImage:
        return None  # it is reported when it is decoded
