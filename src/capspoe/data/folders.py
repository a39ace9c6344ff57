"""A folder of images: listed once, decoded on demand."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from capspoe.data.datasets import Classes, Dataset, Failure, Labels, Read
from capspoe.data.formats import HEIF_EXTENSIONS, UNSUPPORTED, BadImage, decode, is_picture, probe
from capspoe.data.preprocess import Prepare
from capspoe.data.splits import evenly_spaced, hash_names, split_rows
from capspoe.errors import CapspoeWarning, DataError

PROBED = 256  # images that determine size and colour
MAX_KEPT = 64  # larger images are resized
PAPER_SIZE = (28, 28)


class FolderDataset(Dataset):
    """Image files by their paths relative to a folder; `prepare` needs a size and a colour."""

    decodes = True

    def __init__(self, root: Path, names: list[str], prepare: Prepare) -> None:
        assert prepare.size
        self._root = root
        self._names = names
        self._prepare = prepare
        self.file_names = names
        self.shape = prepare.shape(*prepare.size, 1)

    def __len__(self) -> int:
        return len(self._names)

    def read(self, indices: NDArray[np.int64]) -> Read:
        pixels = np.zeros((len(indices), *self.shape), np.uint8)
        failures = []
        for k, index in enumerate(indices.tolist()):
            try:
                pixels[k] = decode(self._root / self._names[index], self._prepare)
            except BadImage as error:
                failures.append(Failure(self._names[index], str(error)))
        return pixels, failures


def open_folder(root: Path, split: str, prepare: Prepare) -> FolderDataset:
    """Open a split of a folder: its own `train` and `test` if it has both, else by a hash of the paths.

    Labels, size and colour are derived from all images, so that they are the same for every split.
    """
    root = root.absolute()
    names, unsupported = list_folder(root)
    if not names:
        advice = "png, jpeg, tiff, webp, bmp, gif and others"
        if unsupported:
            advice = describe_unsupported(unsupported)
        raise DataError(f"{root}: no images in this folder ({advice})")
    if unsupported:
        warnings.warn(f"{root}: skipped {describe_unsupported(unsupported)}", CapspoeWarning, stacklevel=2)
    train = [name for name in names if name.startswith("train/")]
    test = [name for name in names if name.startswith("test/")]
    if train and test:
        # The folders of the classes are one level down, and images outside of both are ignored.
        depth = 1
        names = [name for name in names if name.startswith(("train/", "test/"))]
        chosen = {"train": train, "test": test, "all": names}[split]
    else:
        depth = 0
        rows = split_rows(hash_names(map(os.fsencode, names)), split, str(root))
        chosen = [names[row] for row in rows.tolist()]
    dataset = FolderDataset(root, chosen, complete(prepare, root, names))
    dataset.labels, dataset.classes = _labels(names, chosen, depth)
    return dataset


class Listing(NamedTuple):
    """The files of a folder, sorted by their bytes: images, and pictures of kinds that cannot be read."""

    images: list[str]
    unsupported: list[str]


def list_folder(root: Path) -> Listing:
    """List the images under a folder, as relative paths with `/`. Files of other kinds are left out."""
    images = []
    unsupported = []
    for name in list_files(root):
        if is_picture(root / name):
            images.append(name)
        elif os.path.splitext(name)[1].lower() in (*UNSUPPORTED, *HEIF_EXTENSIONS):
            unsupported.append(name)
    return Listing(sorted(images, key=os.fsencode), sorted(unsupported, key=os.fsencode))


def list_images(root: Path) -> list[str]:
    """The images under a folder."""
    return list_folder(root).images


def describe_unsupported(names: Sequence[str], most: int = 5) -> str:
    """Count and name pictures of kinds that cannot be read."""
    named = ", ".join(names[:most])
    more = f" and {len(names) - most} more" if len(names) > most else ""
    hint = ""
    if any(os.path.splitext(name)[1].lower() in HEIF_EXTENSIONS for name in names):
        hint = "; for HEIC: pip install 'capspoe[heic]'"
    return f"{len(names)} of kinds that are not supported: {named}{more}{hint}"


def list_files(root: Path) -> Iterator[str]:
    """The files under a folder, as relative paths with `/`.

    Hidden files and folders are ignored. Links are followed, unless they lead back to a folder above them.
    """
    # Folders to list: the path with a final `/`, and the device and inode of each folder above it.
    folders: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    while folders:
        prefix, above = folders.pop()
        try:
            status = os.stat(root / prefix)
            here = (status.st_dev, status.st_ino)
            if here in above:  # a link that leads back
                continue
            with os.scandir(root / prefix) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        folders.append((f"{prefix}{entry.name}/", (*above, here)))
                    else:
                        yield prefix + entry.name
        except OSError as error:
            raise DataError(f"{root / prefix}: cannot be listed ({error.strerror})") from error


def _labels(names: list[str], chosen: list[str], depth: int) -> tuple[Labels, Classes]:
    """Label the chosen images by their sub-folder at this depth; no labels if any image is in none."""
    if any(name.count("/") <= depth for name in names):
        return None, None
    classes = sorted({name.split("/")[depth] for name in names}, key=os.fsencode)
    number = {name: k for k, name in enumerate(classes)}
    return np.array([number[name.split("/")[depth]] for name in chosen], np.int64), tuple(classes)


def complete(prepare: Prepare, root: Path, names: list[str]) -> Prepare:
    """Choose the size and colour that are not given: the images' own, or 28x28 if they differ or are large."""
    if prepare.size and prepare.colour:
        return prepare
    probed = []
    for k in evenly_spaced(len(names), PROBED).tolist():
        with suppress(BadImage):  # reported when it is decoded
            probed.append(probe(root / names[k]))
    sizes = {size for size, _ in probed}
    size = PAPER_SIZE
    if len(sizes) == 1:
        own_size = sizes.pop()
        if max(own_size) <= MAX_KEPT:
            size = own_size
    any_colour = any(has_colour for _, has_colour in probed)
    colour = "rgb" if any_colour else "grey"
    return replace(prepare, size=prepare.size or size, colour=prepare.colour or colour)
