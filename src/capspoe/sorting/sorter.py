"""Everything that sorting a folder does, in order: read what is new, group, find duplicates."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from capspoe.atomic import locked
from capspoe.data.folders import list_folder
from capspoe.errors import DataError, InputError
from capspoe.sorting import reading
from capspoe.sorting.duplicates import Duplicates, find_duplicates
from capspoe.sorting.library import Groups, Library, load_groups, load_library
from capspoe.sorting.membership import extend_groups, found_groups, set_of
from capspoe.sorting.settings import Progress, Settings
from capspoe.sorting.update import changed_kind, new_library, update_library


@dataclass
class Sorted:
    """A sorted folder: row k of everything belongs to image k of the library."""

    library: Library
    groups: Groups
    duplicates: Duplicates
    new: set[str]  # names of the images that were not there at the last run
    unsupported: list[str]
    seconds: float


def sort_folder(folder: Path, out: Path, settings: Settings, progress: Progress) -> Sorted:
    """Read and group the images of a folder; keeps in OUT/cache what it finds.

    Parameters
    ----------
    folder : the images, which are only read
    out : where thumbnails and the cache are written
    """
    began = time.monotonic()
    listing = list_folder(folder)
    reading.check_any(listing, folder)
    cache = out / "cache"
    with locked(out, wait=False):
        library = load_library(cache)
        groups = load_groups(cache)
        if library is not None and library.folder != str(folder):
            raise InputError(f"{out} holds the groups of {library.folder}; choose another --out")
        if library is None:
            library = new_library(folder, listing, settings, progress)
            groups = None
        elif settings.features not in ("auto", library.kind):
            library = changed_kind(library, settings)
            groups = None
        first_time = not library.records
        keep = groups is not None and not settings.regroup
        if groups is not None and settings.groups not in (None, len(set_of(groups.group))):
            keep = False
        new = update_library(library, folder, out, listing, progress, grouped=keep)
        if not library.records:
            raise DataError(f"{folder}: {reading.describe_unread(library.unread, listing.unsupported)}")
        if groups is None or not keep:
            groups = found_groups(library, settings, groups, progress)
        elif new or groups.names != library.names():
            extend_groups(groups, library, new)
        library.save(cache)
        groups.save(cache)
    duplicates = duplicates_of(library, groups)
    return Sorted(
        library, groups, duplicates, set() if first_time else new, listing.unsupported, time.monotonic() - began
    )


def duplicates_of(library: Library, groups: Groups) -> Duplicates:
    """Duplicates among all images: those that are near each other by their points are compared."""
    count, k = groups.near.shape
    pairs = np.stack([np.repeat(np.arange(count), k), groups.near.ravel()], 1)
    sizes = np.array([[record.width, record.height] for record in library.records])
    digests = [bytes.fromhex(record.digest) for record in library.records]
    modified = np.array([record.stamp.modified for record in library.records])
    return find_duplicates(digests, library.small, sizes, modified, pairs)
