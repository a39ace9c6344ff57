"""One image file to pixels, whatever its format, mode and orientation; or the reason why not."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from capspoe.data.prepare import WHITE, Prepare
from capspoe.data.values import as_bytes, scale_of
from capspoe.errors import DataError

EXTENSIONS = frozenset(
    [
        *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp"),
        *(".avif", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".j2k", ".jpx", ".ico", ".pcx"),
        *(".sgi", ".dds", ".qoi", ".psd"),
    ]
)
FORMATS = (  # without EPS and WMF on purpose: reading them starts another program
    *("PNG", "JPEG", "MPO", "BMP", "DIB", "GIF", "TIFF", "WEBP", "AVIF", "PPM", "TGA", "JPEG2000", "ICO"),
    *("PCX", "SGI", "DDS", "QOI", "PSD"),
)
GREY_MODES = frozenset(["1", "L", "LA", "F", "I", "I;16", "I;16B", "I;16L", "I;16N"])
SWAPPED = (5, 6, 7, 8)  # EXIF orientations that lie on their side
ORIENTATION = 0x0112


class BadImage(Exception):
    """A file that cannot be decoded; its text is the reason."""


class Probe(NamedTuple):
    """What the head of a file says of the image."""

    size: tuple[int, int]
    colour: bool


def probe(path: Path) -> Probe:
    """Height, width and colour of an image, from its head where the format allows it."""
    with _opened(path) as picture:
        width, height = picture.size
        # From some version on, Pillow turns the size of a TIFF itself: there, only the pixels tell.
        if _orientation(picture) in SWAPPED and picture.format == "TIFF":
            width, height = ImageOps.exif_transpose(picture).size
        elif _orientation(picture) in SWAPPED:
            width, height = height, width
        return Probe((height, width), _is_colour(picture))


def decode(path: Path, prepare: Prepare) -> NDArray[np.uint8]:
    """The first image of a file as (H, W, C); `prepare` has a size and a colour."""
    with _opened(path) as picture:
        if picture.format == "PNG":
            with _opened(path) as same:
                same.verify()  # decoding alone passes over pixels whose checksum is wrong
        if prepare.size:
            # A JPEG far larger than needed is decoded at a fraction of its size, at least twice the target.
            picture.draft(None, (2 * max(prepare.size),) * 2)
        upright = ImageOps.exif_transpose(picture) if _orientation(picture) != 1 else picture
        return prepare.picture(_flat(upright))


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    """An open picture; every way in which Pillow's many decoders fail becomes BadImage."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # broken metadata: the pixels are what counts
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_formats()) as picture:
                yield picture
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(f"more than {Image.MAX_IMAGE_PIXELS} pixels") from error
    except UnidentifiedImageError as error:
        raise BadImage("not an image that can be read") from error
    except DataError as error:
        raise BadImage(str(error)) from error
    except OSError as error:
        raise BadImage(error.strerror or str(error)) from error
    except Exception as error:
        raise BadImage(str(error) or type(error).__name__) from error


@cache
def _formats() -> list[str]:
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _orientation(picture: Image.Image) -> int:
    try:
        return int(picture.getexif().get(ORIENTATION, 1))
    except Exception:  # a broken EXIF block says nothing about the pixels
        return 1


def _is_colour(picture: Image.Image) -> bool:
    if picture.mode in ("P", "PA"):
        palette = np.array(picture.getpalette("RGB")).reshape(-1, 3)
        return bool((palette != palette[:, :1]).any())
    return picture.mode not in GREY_MODES


def _flat(picture: Image.Image) -> Image.Image:
    """In mode L or RGB: transparency over white, 16 bits to 8, everything else by Pillow."""
    if picture.mode in GREY_MODES - {"1", "L", "LA"}:
        return Image.fromarray(_eight_bits(picture))
    grey = not _is_colour(picture)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        page = Image.new("RGBA", picture.size, (WHITE, WHITE, WHITE, 255))
        picture = Image.alpha_composite(page, picture)
    return picture.convert("RGB").convert("L") if grey else picture.convert("RGB")


def _eight_bits(picture: Image.Image) -> NDArray[np.uint8]:
    values = np.asarray(picture)
    if picture.mode == "F":
        return as_bytes(values, scale_of(values, "floats"))
    if values.min() < 0 or values.max() > 65535:
        raise BadImage(f"values from {values.min()} to {values.max()}, beyond 16 bits")
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
