"""Bring what is known about a folder's images up to date: which features suit it, and what is new in it."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from capspoe.atomic import disk_errors
from capspoe.data import evenly_spaced
from capspoe.data.formats import BadImage, probe
from capspoe.sorting.features import Kind, check_kind, choose_kind
from capspoe.sorting.library import Library, Record, remove_thumbnails, write_thumbnail
from capspoe.sorting.photos import PhotoFeatures
from capspoe.sorting.reading import Listing, Seen, Unread, read_files, stamp_of
from capspoe.sorting.settings import Progress, Settings

PROBED = 48  # images that are looked at to choose the features
MAX_OWN_SIDE = 55  # small squares of images that share a size of at most this keep it
SMALL_SIDE = 42  # side of the small squares otherwise; 28 show less of colour drawings (emoji of three vendors)
BATCH = 64  # images whose features are computed at once


def new_library(folder: Path, listing: Listing, settings: Settings, progress: Progress) -> Library:
    """An empty library for a folder: looks at some images to choose the features."""
    names = [listing.images[row] for row in evenly_spaced(len(listing.images), PROBED)]
    progress.plan(len(listing.images), len(listing.images))
    side = common_side(folder, names)
    kind: Kind
    if settings.features == "auto":
        advance = progress.images("looking", len(names))
        squares = []
        for done, item in enumerate(read_files(folder, names, side), 1):
            if isinstance(item, Seen):
                squares.append(item.small)
            advance(done)
        if squares:
            kind, why = choose_kind(np.stack(squares))
            progress.info(why)
        else:
            kind = "outlines"
    else:
        check_kind(settings.features)
        kind = settings.features
    return Library(str(folder), side, kind)


def common_side(folder: Path, names: list[str]) -> int:
    """The side that all of these square images share, if it is small; otherwise the usual one."""
    sizes = set()
    for name in names:
        try:
            sizes.add(probe(folder / name)[0])
        except BadImage:
            continue
    if len(sizes) == 1:
        height, width = sizes.pop()
        if height == width and 8 <= height <= MAX_OWN_SIDE:
            return height
    return SMALL_SIDE


def changed_kind(library: Library, settings: Settings) -> Library:
    """The library with other features; what was read is used again as far as possible."""
    check_kind(settings.features)
    assert settings.features != "auto"
    if settings.features == "photos" and library.photos is None:
        return Library(library.folder, library.side, settings.features)  # the files must be read again
    return replace(library, kind=settings.features)


def update_library(
    library: Library, folder: Path, out: Path, listing: Listing, progress: Progress, grouped: bool
) -> set[str]:
    """Forget files that are gone, read those that are new or have changed; returns the names of those.

    `grouped` says that there are groups, to which new images will only be added.
    """
    there = set(listing.images)
    stamps = {record.name: record.stamp for record in library.records}
    stamps.update({item.name: item.stamp for item in library.unread})
    wanted = []
    for name in listing.images:
        try:
            current = stamp_of(folder / name)
        except OSError:
            current = None
        if name not in stamps or stamps[name] != current:
            wanted.append(name)
    reread = set(wanted)
    kept = [row for row, record in enumerate(library.records) if record.name in there - reread]
    thumbnails = {record.thumbnail for record in library.records}
    if len(kept) < len(library.records):
        library.keep(np.array(kept, np.int64))
    library.unread = [item for item in library.unread if item.name in there - reread]
    progress.plan(0, 0 if grouped else len(listing.images))
    if wanted:
        read_new(library, folder, out, wanted, progress)
    remove_thumbnails(out, thumbnails - {record.thumbnail for record in library.records})
    restore_thumbnails(library, folder, out)
    return reread & set(library.names())


def restore_thumbnails(library: Library, folder: Path, out: Path) -> None:
    """Make thumbnails again that somebody has deleted."""
    there = {path.name for path in (out / "thumbnails").glob("*/*")}
    missing = [record.name for record in library.records if Path(record.thumbnail).name not in there]
    with disk_errors(out):
        for item in read_files(folder, missing, library.side):
            if isinstance(item, Seen):
                write_thumbnail(out, item.digest.hex(), item.thumbnail)


def read_new(library: Library, folder: Path, out: Path, names: list[str], progress: Progress) -> None:
    """Read files into the library, and compute their features a batch at a time."""
    advance = progress.images("reading", len(names))
    records: list[Record] = []
    small = np.empty((len(names), library.side, library.side, 3), np.uint8)
    photos: list[np.ndarray] = []
    batch: list[Seen] = []

    def finish_batch() -> None:
        squares = [item.large for item in batch if item.large is not None]
        if squares:
            photos.append(network.of(np.stack(squares)).astype(np.float16))
        batch.clear()

    with disk_errors(out), PhotoFeatures() as network:
        large = library.kind == "photos"
        for done, item in enumerate(read_files(folder, names, library.side, large), 1):
            if isinstance(item, Unread):
                library.unread.append(item)
            else:
                digest = item.digest.hex()
                thumbnail = write_thumbnail(out, digest, item.thumbnail)
                small[len(records)] = item.small
                records.append(Record(item.name, item.stamp, digest, item.width, item.height, thumbnail))
                batch.append(item)
            if len(batch) == BATCH:
                finish_batch()
            advance(done)
        finish_batch()
    if records:
        library.add(records, small[: len(records)], np.concatenate(photos) if photos else None)
