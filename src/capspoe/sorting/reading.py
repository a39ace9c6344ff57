"""Read image files once: a thumbnail for the page, and small squares to compute features from."""

import hashlib
import io
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from capspoe.data.folders import Listing, describe_unsupported
from capspoe.data.formats import BadImage, read_picture
from capspoe.errors import DataError
from capspoe.training.views import photos

THUMBNAIL_SIDE = 160  # pixels of the longer side
THUMBNAIL_QUALITY = 80
LOSSLESS_SIDE = 64  # pixels up to which a thumbnail is a PNG: JPEG blurs what is so small, and saves nothing
PLAIN = 14  # difference from the median up to which a border pixel belongs to a plain background
AHEAD = 32  # files that are read ahead of what is used


class Stamp(NamedTuple):
    """What changes when a file does."""

    size: int
    modified: int  # nanoseconds


@dataclass(frozen=True)
class Seen:
    """What was read from a file.

    digest        of its bytes
    width, height upright, in pixels
    small         (S, S, 3): for outlines, colours and near-duplicates
    large         (160, 160, 3): for features of photographs; None if they are not wanted
    thumbnail     a JPEG or a PNG
    """

    name: str
    stamp: Stamp
    digest: bytes
    width: int
    height: int
    small: UInt8[np.ndarray, "S S 3"]
    large: UInt8[np.ndarray, "L L 3"] | None
    thumbnail: bytes


class Unread(NamedTuple):
    """A file that cannot be read, and why."""

    name: str
    stamp: Stamp
    reason: str


def stamp_of(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(status.st_size, status.st_mtime_ns)


def read_files(folder: Path, names: Sequence[str], side: int, large: bool = False) -> Iterator[Seen | Unread]:
    """Read files in order, some ahead in threads; small squares have this side, large ones are made on request."""
    workers = max(1, os.cpu_count() or 1)
    waiting = iter(names)
    pool = ThreadPoolExecutor(workers)
    pending: deque[Future[Seen | Unread]] = deque()
    try:
        pending.extend(pool.submit(read_file, folder, name, side, large) for name in islice(waiting, AHEAD * workers))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(read_file, folder, name, side, large) for name in islice(waiting, 1))
            yield result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def read_file(folder: Path, name: str, side: int, large: bool = False) -> Seen | Unread:
    """Read one file."""
    path = folder / name
    stamp = Stamp(0, 0)
    try:
        stamp = stamp_of(path)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()
        picture = read_picture(path, THUMBNAIL_SIDE)
    except OSError as error:
        return Unread(name, stamp, error.strerror or str(error))
    except BadImage as error:
        return Unread(name, stamp, str(error))
    image = picture.image.convert("RGB")
    return Seen(
        name,
        stamp,
        digest,
        picture.width,
        picture.height,
        np.asarray(square(image, side)),
        np.asarray(square(image, photos.SIDE)) if large else None,
        thumbnail(image),
    )


def square(image: Image.Image, side: int) -> Image.Image:
    """A square of the image: all of it on a plain background, or the centre of what has none."""
    width, height = image.size
    if width != height:
        background = plain_background(image)
        if background is not None:
            longest = max(width, height)
            padded = Image.new("RGB", (longest, longest), background)
            padded.paste(image, ((longest - width) // 2, (longest - height) // 2))
            image = padded
    return ImageOps.fit(image, (side, side), method=Image.Resampling.BICUBIC)


def plain_background(image: Image.Image) -> tuple[int, int, int] | None:
    """The colour of the background, if most of the border has one."""
    pixels = np.asarray(image.reduce(max(1, min(image.size) // 32)), np.int16)
    top_and_bottom = pixels[[0, -1]].reshape(-1, 3)
    left_and_right = pixels[:, [0, -1]].reshape(-1, 3)
    border = np.concatenate([top_and_bottom, left_and_right])
    median = np.median(border, axis=0)
    close = np.abs(border - median).max(1) <= PLAIN
    if close.mean() < 0.75:
        return None
    red, green, blue = (int(value) for value in median)
    return red, green, blue


def thumbnail(image: Image.Image) -> bytes:
    """The file of a thumbnail. It has no metadata and no transparency, so that it shows on any background."""
    buffer = io.BytesIO()
    if max(image.size) <= LOSSLESS_SIDE:
        image.save(buffer, "PNG")
    else:
        image.save(buffer, "JPEG", quality=THUMBNAIL_QUALITY)
    return buffer.getvalue()


def describe_unread(unread: Sequence[Unread], unsupported: Sequence[str], most: int = 5) -> str:
    """One line that counts and names what is skipped, or an empty one."""
    parts = []
    if unread:
        named = ", ".join(f"{item.name} ({item.reason})" for item in unread[:most])
        more = f" and {len(unread) - most} more" if len(unread) > most else ""
        parts.append(f"{len(unread)} cannot be read: {named}{more}")
    if unsupported:
        parts.append(describe_unsupported(unsupported, most))
    return "; ".join(parts)


def check_any(listing: Listing, folder: Path) -> None:
    """Refuse a folder without images."""
    if not listing.images:
        advice = describe_unread([], listing.unsupported) or "png, jpeg, tiff, webp, bmp, gif and others"
        raise DataError(f"{folder}: no images in this folder ({advice})")
