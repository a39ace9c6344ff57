"""Images as people give them: a data set, files, folders, arrays, or bytes from standard input."""

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from capspoe.data.datasets import Dataset, Failure, Read
from capspoe.data.formats import BadImage, decode
from capspoe.data.preprocess import Prepare
from capspoe.errors import DataError, InputError

STANDARD_INPUT = "-"
FROM_PYTHON = "images from Python"  # the name of images that were passed as an object
MAX_BYTES = 1 << 30  # from standard input
SIGNATURES = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz"}  # anything else is an image file


class Framed(NamedTuple):
    """A grey picture as a network expects it."""

    pixels: NDArray[np.float32]  # (H, W) in [0, 1]
    inverted: bool  # whether the picture had the other polarity
    blank: bool  # whether nothing stands out from the background
    fitted: bool  # whether the object was scaled to its usual size


@dataclass
class Tally:
    """What was done to the images that were read so far."""

    images: int = 0
    inverted: int = 0
    fitted: int = 0

    def clear(self) -> None:
        self.images = self.inverted = self.fitted = 0


def resized(grey: NDArray[np.float32]) -> Framed:
    """A picture that has the right size already."""
    return Framed(grey, False, False, False)


@dataclass(frozen=True)
class Likeness(Prepare):
    """Preprocess pictures by a function, whatever their size and colour; `tally` counts what it did.

    The function is `drawings.frame` for a network. It is not named here, because it needs PyTorch.
    """

    image: tuple[int, int] = (28, 28)  # (H, W) of the network
    frame: Callable[[NDArray[np.float32]], Framed] = resized
    tally: Tally = field(default_factory=Tally, compare=False)

    def shape(self, height: int, width: int, channels: int) -> tuple[int, int, int]:
        return *self.image, 1

    def batch(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        grey = Prepare(colour="grey").batch(pixels)[..., 0]
        return np.stack([self._framed(image) for image in grey])

    def picture(self, picture: Image.Image) -> NDArray[np.uint8]:
        return self._framed(Prepare(colour="grey").picture(picture)[..., 0])

    def _framed(self, grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(h, w) to (H, W, 1)."""
        framed = self.frame(grey.astype(np.float32) / np.float32(255))
        self.tally.images += 1
        self.tally.inverted += framed.inverted and not framed.blank
        self.tally.fitted += framed.fitted
        return np.rint(255 * framed.pixels).astype(np.uint8)[..., None]


class Pictures(Dataset):
    """Image files by their paths relative to a folder, whose preprocessing alone decides their shape."""

    decodes = True

    def __init__(self, root: Path, names: list[str], prepare: Prepare) -> None:
        self._root = root
        self._prepare = prepare
        self.file_names = names
        self.shape = prepare.shape(0, 0, 1)

    def __len__(self) -> int:
        return len(self.file_names or ())

    def read(self, indices: NDArray[np.int64]) -> Read:
        pixels = np.zeros((len(indices), *self.shape), np.uint8)
        failures = []
        for k, name in enumerate(self.names(indices)):
            try:
                pixels[k] = decode(self._root / name, self._prepare)
            except BadImage as error:
                failures.append(Failure(name, str(error)))
        return pixels, failures


class Joined(Dataset):
    """Several data sets of one shape, one after the other."""

    def __init__(self, parts: Sequence[Dataset], names: Sequence[str]) -> None:
        shapes = {part.shape for part in parts}
        if len(shapes) > 1:
            sizes = " and ".join(sorted(f"{height}x{width}x{channels}" for height, width, channels in shapes))
            raise DataError(f"these images have different shapes ({sizes}); --size and --colour make them alike")
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])
        self.shape = parts[0].shape
        self.decodes = any(part.decodes for part in parts)
        # Labels of different folders are different things.
        self.file_names = []
        for part, name in zip(parts, names, strict=True):
            self.file_names += [label_file(part, name, k) for k in range(len(part))]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read(self, indices: NDArray[np.int64]) -> Read:
        pixels = np.zeros((len(indices), *self.shape), np.uint8)
        failures: list[Failure] = []
        which = np.searchsorted(self._ends, indices, side="right")
        for number in np.unique(which).tolist():
            rows = np.flatnonzero(which == number)
            part = self._parts[number]
            start = self._ends[number] - len(part)
            pixels[rows], bad = part.read(indices[rows] - start)
            failures += bad
        return pixels, failures


def label_file(part: Dataset, name: str, k: int) -> str:
    """What image k of a data set is called beside those of others."""
    if part.file_names is None:
        return f"{name}[{k}]"
    if os.path.isdir(os.path.expanduser(name)):
        return f"{name.rstrip('/')}/{part.file_names[k]}"
    return part.file_names[k]


def read_standard_input() -> Path:
    """The bytes of standard input as a file with the suffix of its format; it is removed when Python ends."""
    if sys.stdin.isatty():
        raise InputError("- reads an image, an .npy or an .npz from standard input: cat digit.png | capspoe ... -")
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if not content:
        raise InputError("standard input is empty; give it an image file, an .npy or an .npz")
    if len(content) > MAX_BYTES:
        raise InputError(f"standard input is longer than {MAX_BYTES >> 20} MB; write it to a file first")
    suffix = ".png"  # Pillow looks at the content
    for signature, kind in SIGNATURES.items():
        if content.startswith(signature):
            suffix = kind
    folder = _Temporary.folder()
    path = folder / f"standard-input{suffix}"
    path.write_bytes(content)
    return path


class _Temporary:
    """A temporary folder of this process."""

    _folder: "tempfile.TemporaryDirectory[str] | None" = None

    @classmethod
    def folder(cls) -> Path:
        if cls._folder is None:
            cls._folder = tempfile.TemporaryDirectory(prefix="capspoe-")
        return Path(cls._folder.name)
