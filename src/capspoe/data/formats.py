"""File formats: idx, CIFAR-10's binary format, scikit-learn's digits, and the image formats of Pillow.

A reader in READERS returns the pixels (n, H, W, C) of a split and the labels (n,). Its files have
been verified by their checksums before.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capspoe.data.catalogue import Entry
from capspoe.data.preprocess import Prepare, as_uint8, over_background, pixel_scale
from capspoe.data.splits import hash_positions
from capspoe.errors import DataError

Contents = tuple[NDArray[np.uint8], NDArray[np.int64]]
UNSIGNED_BYTES = b"\0\0\x08"
CIFAR_SHAPE = (3, 32, 32)
CIFAR_RECORD = 1 + math.prod(CIFAR_SHAPE)
EXTENSIONS = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".avif"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".j2k", ".jpx", ".ico", ".pcx", ".sgi", ".dds"),
    *(".qoi", ".psd"),
)
HEIF_EXTENSIONS = (".heic", ".heif", ".hif")  # with the extra `heic`
UNSUPPORTED = (  # pictures too, but nothing here reads them: reported, not ignored
    *(".svg", ".svgz", ".eps", ".ps", ".pdf", ".ai", ".wmf", ".emf", ".xcf", ".kra", ".clip", ".indd"),
    *(".raw", ".dng", ".cr2", ".cr3", ".crw", ".nef", ".nrw", ".arw", ".srf", ".sr2", ".orf", ".rw2", ".raf"),
    *(".pef", ".srw", ".x3f", ".jxl", ".jxr", ".exr", ".hdr", ".fits", ".fit"),
)
SIGNATURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")  # first bytes of PNG, JPEG, GIF, TIFF
FORMATS = (  # without EPS and WMF: Pillow reads them by starting another program
    *("PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "TIFF", "WEBP", "AVIF", "PPM", "TGA", "JPEG2000", "ICO"),
    *("PCX", "SGI", "DDS", "QOI", "PSD", "HEIF"),
)
SIXTEEN_BITS = ("I", "I;16", "I;16B", "I;16L", "I;16N")
GREY_MODES = ("1", "L", "LA", "F", *SIXTEEN_BITS)
RESIZABLE = ("L", "LA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr")  # modes
ORIENTATION = 0x0112
warnings.filterwarnings("ignore", module="PIL")  # about broken metadata and images that are refused below


def read_idx(entry: Entry, split: str) -> Contents:
    parts = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}[split]
    labels = [open_idx(entry.folder / f"{part}-labels-idx1-ubyte") for part in parts]
    images = [open_idx(entry.folder / f"{part}-images-idx3-ubyte")[..., None] for part in parts]
    # A single part stays memory-mapped.
    pixels = images[0] if len(images) == 1 else np.concatenate(images)
    return pixels, np.concatenate(labels).astype(np.int64)


def open_idx(path: Path) -> NDArray[np.uint8]:
    """Memory-map the array of an idx file.

    The file has two zero bytes, a type, the rank, the shape (big-endian) and the values.
    """
    with path.open("rb") as file:
        magic = file.read(4)
        if magic[:3] != UNSIGNED_BYTES or magic[3:] not in (b"\1", b"\2", b"\3", b"\4"):
            raise DataError(f"{path}: not an idx file of unsigned bytes with 1 to 4 axes")
        shape = tuple(np.fromfile(file, ">u4", magic[3]).tolist())
    start = 4 + 4 * magic[3]
    if 0 in shape or path.stat().st_size != start + math.prod(shape):
        raise DataError(f"{path}: the size of the file does not match its header {shape}")
    return np.memmap(path, np.uint8, mode="r", offset=start, shape=shape)


def encode_idx(values: NDArray[np.uint8]) -> bytes:
    shape = np.array(values.shape, ">u4")
    return UNSIGNED_BYTES + bytes([values.ndim]) + shape.tobytes() + values.tobytes()


def read_cifar(entry: Entry, split: str) -> Contents:
    test = {"train": (False,), "test": (True,), "all": (False, True)}[split]
    batches = []
    for file in entry.files:
        if file.name.startswith("test") in test:
            values = np.fromfile(entry.folder / file.name, np.uint8)
            batches.append(values.reshape(-1, CIFAR_RECORD))
    records = np.concatenate(batches)
    pixels = records[:, 1:].reshape(-1, *CIFAR_SHAPE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, 0].astype(np.int64)


def encode_cifar(pixels: NDArray[np.uint8], labels: NDArray[np.integer]) -> bytes:
    """Return the bytes of a CIFAR-10 batch: for each image its label, then its red, green and blue bytes."""
    records = np.empty((len(pixels), CIFAR_RECORD), np.uint8)
    records[:, 0] = labels
    records[:, 1:] = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return records.tobytes()


def read_digits(entry: Entry, split: str) -> Contents:
    """The 8x8 images resized, and their values 0..16 scaled to 0..255."""
    from sklearn.datasets import load_digits

    # scikit-learn has no split of its own: the images with the smallest hashes are the test images.
    order = np.argsort(hash_positions(entry.train + entry.test), kind="stable")
    rows = np.sort({"train": order[entry.test :], "test": order[: entry.test], "all": order}[split])
    digits = load_digits()
    small = np.rint(digits.images[rows] * (255 / 16)).astype(np.uint8)
    pixels = Prepare(size=entry.shape[:2]).batch(small[..., None])
    return pixels, digits.target[rows].astype(np.int64)


READERS = {"idx": read_idx, "cifar": read_cifar, "digits": read_digits}


class BadImage(Exception):
    """A file that cannot be decoded; the message is the reason."""


def probe(path: Path) -> tuple[tuple[int, int], bool]:
    """Return (height, width) and whether the image has colour; only rotated images are decoded for that."""
    with _open(path) as picture:
        has_colour = _has_colour(picture)
        upright = _upright(picture)
        return (upright.height, upright.width), has_colour


def decode(path: Path, prepare: Prepare) -> NDArray[np.uint8]:
    """Return the first image of a file as (H, W, C); `prepare` needs a size and a colour."""
    with _open(path) as picture:
        if picture.format == "PNG":
            with _open(path) as same:
                same.verify()  # decoding alone does not notice wrong checksums
        if prepare.size:
            # Decode a much larger JPEG at a fraction of its size, at least twice the target.
            picture.draft(None, (2 * max(prepare.size),) * 2)
        return prepare.picture(_flatten(_upright(picture)))


class Picture(NamedTuple):
    """An image of mode L or RGB, reduced, and the size that it has in its file when upright."""

    image: Image.Image
    width: int
    height: int


def read_picture(path: Path, side: int) -> Picture:
    """Return the first image of a file upright and with its proportions, its longer side at most `side` pixels."""
    with _open(path) as picture:
        if picture.format == "PNG":
            with _open(path) as same:
                same.verify()
        width, height = picture.size
        picture.draft(None, (side, side))
        # Converting is cheaper once the image is small, but palettes and 16 bits cannot be resized.
        if picture.mode in RESIZABLE:
            picture.thumbnail((side, side), Image.Resampling.BICUBIC)
        upright = _upright(picture)
        if (upright.width > upright.height) != (picture.width > picture.height):
            width, height = height, width
        image = _flatten(upright)
        image.thumbnail((side, side), Image.Resampling.BICUBIC)
        return Picture(image, width, height)


def readable_extensions() -> tuple[str, ...]:
    """The extensions of the files that can be read here: HEIC needs the extra `heic`."""
    return EXTENSIONS + HEIF_EXTENSIONS if _register_heif() else EXTENSIONS


def is_picture(path: Path) -> bool:
    """Whether a file is one that can be read here: by its extension, or without one by its first bytes."""
    if path.suffix:
        return path.suffix.lower() in readable_extensions()
    try:
        with path.open("rb") as file:
            start = file.read(12)
    except OSError:
        return False
    return start.startswith(SIGNATURES) or (start[:4], start[8:]) == (b"RIFF", b"WEBP")


@cache
def _register_heif() -> bool:
    """Let Pillow read HEIC, if the package for it is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener(thumbnails=False)
    return True


@contextmanager
def _open(path: Path) -> Iterator[Image.Image]:
    """Open an image; whatever Pillow raises, then or later, becomes BadImage."""
    try:
        Image.init()
        _register_heif()
        # Some of the formats are missing from some builds of Pillow.
        formats = [name for name in FORMATS if name in Image.OPEN]
        with Image.open(path, formats=formats) as picture:
            if picture.width * picture.height > (Image.MAX_IMAGE_PIXELS or math.inf):
                raise Image.DecompressionBombError
            yield picture
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(f"more than {Image.MAX_IMAGE_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise BadImage("not an image in a known format") from error
    except Exception as error:  # Pillow's decoders fail in many ways
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise BadImage(reason) from error


def _upright(picture: Image.Image) -> Image.Image:
    try:
        rotated = int(picture.getexif().get(ORIENTATION, 1)) != 1
    except Exception:  # broken EXIF data does not damage the pixels
        rotated = False
    if not rotated:
        return picture
    return ImageOps.exif_transpose(picture)


def _has_colour(picture: Image.Image) -> bool:
    if picture.mode in ("P", "PA"):
        palette = np.array(picture.getpalette("RGB")).reshape(-1, 3)
        return bool((palette != palette[:, :1]).any())
    return picture.mode not in GREY_MODES


def _flatten(picture: Image.Image) -> Image.Image:
    """Convert to mode L or RGB: transparency over a background, 16 bits to 8."""
    if picture.mode == "F":
        values = np.asarray(picture)
        return Image.fromarray(as_uint8(values, pixel_scale(values, "floats")))
    if picture.mode in SIXTEEN_BITS:
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise DataError(f"values from {values.min()} to {values.max()}, more than 16 bits")
        # 65535 / 255 = 257, rounded to the nearest value.
        return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))
    has_colour = _has_colour(picture)
    if picture.has_transparency_data:
        picture = over_background(picture)
    picture = picture.convert("RGB")
    if has_colour:
        return picture
    return picture.convert("L")
