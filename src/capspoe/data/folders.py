"""A folder of images: listed once, decoded on demand."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from capspoe.data.datasets import Classes, Dataset, Failure, Labels, Read
from capspoe.data.formats import EXTENSIONS, BadImage, decode, probe
from capspoe.data.preprocess import Prepare
from capspoe.data.splits import evenly_spaced, hash_names, split_rows
from capspoe.errors import DataError

PROBED = 256  # images that determine size and colour
MAX_KEPT = 64  # larger images are resized
PAPER_SIZE = (28, 28)


class FolderDataset(Dataset):
    """Image files by their paths relative to a folder; `prepare` needs a size and a colour."""

    decodes = True

    def __init__(self, root: Path, names: list[str], prepare: Prepare) -> None:
        assert prepare.size
        self._root, self._names, self._prepare = root, names, prepare
        self.file_names, self.shape = names, prepare.shape(*prepare.size, 1)

    def __len__(self) -> int:
        return len(self._names)

    def read(self, indices: NDArray[np.int64]) -> Read:
        pixels, failures = np.zeros((len(indices), *self.shape), np.uint8), []
        for k, index in enumerate(indices.tolist()):
            try:
                pixels[k] = decode(self._root / self._names[index], self._prepare)
            except BadImage as error:
                failures.append(Failure(self._names[index], str(error)))
        return pixels, failures


def open_folder(root: Path, split: str, prepare: Prepare) -> FolderDataset:
    """Open a split of a folder: its own `train` and `test` if it has both, else by a hash of the relative paths.

    Labels, size and colour are derived from all images, so that they are the same for every split.
    """
    root = root.absolute()
    names = list_images(root)
    parts = {part: [name for name in names if name.startswith(f"{part}/")] for part in ("train", "test")}
    if all(parts.values()):
        names = [name for name in names if name.startswith(("train/", "test/"))]
        chosen, depth = parts.get(split, names), 1
    elif names:
        rows = split_rows(hash_names(map(os.fsencode, names)), split, str(root))
        chosen, depth = [names[row] for row in rows.tolist()], 0
    else:
        raise DataError(f"{root}: no images in this folder (png, jpeg, tiff, webp, bmp, gif and others)")
    dataset = FolderDataset(root, chosen, _complete(prepare, root, names))
    dataset.labels, dataset.classes = _labels(names, chosen, depth)
    return dataset


def list_images(root: Path) -> list[str]:
    """List the images under a folder by their extensions, as relative paths with `/`, sorted by their bytes.

    Hidden files and folders are ignored. Links are followed, unless they lead back to a folder above them.
    """
    found: list[str] = []
    folders: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    while folders:
        prefix, above = folders.pop()
        try:
            status = os.stat(root / prefix)
            here = (status.st_dev, status.st_ino)
            if here in above:
                continue
            with os.scandir(root / prefix) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        folders.append((f"{prefix}{entry.name}/", (*above, here)))
                    elif os.path.splitext(entry.name)[1].lower() in EXTENSIONS:
                        found.append(prefix + entry.name)
        except OSError as error:
            raise DataError(f"{root / prefix}: cannot be listed ({error.strerror})") from error
    return sorted(found, key=os.fsencode)


def _labels(names: list[str], chosen: list[str], depth: int) -> tuple[Labels, Classes]:
    """Label the chosen images by their sub-folder at this depth; no labels if any image is in none."""
    if any(name.count("/") <= depth for name in names):
        return None, None
    classes = sorted({name.split("/")[depth] for name in names}, key=os.fsencode)
    number = {name: k for k, name in enumerate(classes)}
    return np.array([number[name.split("/")[depth]] for name in chosen], np.int64), tuple(classes)


def _complete(prepare: Prepare, root: Path, names: list[str]) -> Prepare:
    """Choose the size and colour that are not given: those of the images, or 28x28 if they differ or are large."""
    if prepare.size and prepare.colour:
        return prepare
    probed = []
    for k in evenly_spaced(len(names), PROBED).tolist():
        with suppress(BadImage):  # reported when it is decoded
            probed.append(probe(root / names[k]))
    sizes = {size for size, _ in probed}
    own_size = sizes.pop() if len(sizes) == 1 else None
    return replace(
        prepare,
        size=prepare.size or (own_size if own_size and max(own_size) <= MAX_KEPT else PAPER_SIZE),
        colour=prepare.colour or ("rgb" if any(colour for _, colour in probed) else "grey"),
    )
