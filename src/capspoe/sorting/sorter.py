"""Everything that sorting a folder does, in order: read what is new, group, find duplicates, write."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import torch
from jaxtyping import Int

from capspoe.atomic import disk_errors, locked
from capspoe.data import evenly_spaced
from capspoe.data.formats import BadImage, probe
from capspoe.errors import DataError, InputError
from capspoe.sorting import reading
from capspoe.sorting.duplicates import Duplicates, find_duplicates
from capspoe.sorting.features import Kind, Projection, check_kind, choose_kind
from capspoe.sorting.grouping import (
    NEIGHBOURS,
    ODD,
    Fit,
    Graph,
    assign,
    fence,
    fit_of,
    group_nodes,
    neighbour_graph,
    numbered,
    usual_distance,
)
from capspoe.sorting.library import (
    Groups,
    Library,
    Record,
    load_groups,
    load_library,
    remove_thumbnails,
    write_thumbnail,
)
from capspoe.sorting.reading import Listing, Seen, Unread, list_folder, read_files, stamp_of
from capspoe.sorting.tree import ordered
from capspoe.training.spectral import nearest
from capspoe.training.views import photo_features

PROBED = 48  # images that are looked at to choose the features
MAX_OWN_SIDE = 55  # small squares of images that share a size of at most this keep it
SMALL_SIDE = 28  # side of the small squares otherwise
BATCH = 64  # images whose features are computed at once


class Progress(Protocol):
    """Where to say what is going on."""

    def info(self, line: str) -> None: ...

    def stage(self, title: str, total: int) -> Callable[[int], None]:
        """Begin a stage; call what is returned with the number of images that are done."""
        ...


@dataclass(frozen=True)
class Settings:
    """What a person may choose.

    groups      number of groups; None estimates it, or keeps the groups that are there
    features    "auto" looks at the images and chooses
    regroup     group everything again, even if there are groups
    """

    groups: int | None = None
    features: Literal["auto", "outlines", "photos"] = "auto"
    regroup: bool = False
    seed: int = 0


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
        new = update_library(library, folder, out, listing, progress)
        if not library.records:
            raise DataError(f"{folder}: {reading.describe_unread(library.unread, listing.unsupported)}")
        if groups is None or settings.regroup or settings.groups not in (None, len(set_of(groups.group))):
            groups = found_groups(library, settings, groups, progress)
        elif new or groups.names != library.names():
            extend_groups(groups, library, new)
        library.save(cache)
        groups.save(cache)
    duplicates = duplicates_of(library, groups)
    return Sorted(
        library, groups, duplicates, set() if first_time else new, listing.unsupported, time.monotonic() - began
    )


def set_of(group: Int[np.ndarray, " n"]) -> set[int]:
    """The numbers of the groups, without the odd ones."""
    return set(np.unique(group).tolist()) - {ODD}


def new_library(folder: Path, listing: Listing, settings: Settings, progress: Progress) -> Library:
    """An empty library for a folder: looks at some images to choose the features."""
    names = [listing.images[row] for row in evenly_spaced(len(listing.images), PROBED)]
    side = common_side(folder, names)
    kind: Kind
    if settings.features == "auto":
        squares = [item.small for item in read_files(folder, names, side) if isinstance(item, Seen)]
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


def update_library(library: Library, folder: Path, out: Path, listing: Listing, progress: Progress) -> set[str]:
    """Forget files that are gone, read those that are new or have changed; returns the names of those."""
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
    thumbnails = {record.thumbnail for record in library.records if record.thumbnail}
    if len(kept) < len(library.records):
        library.keep(np.array(kept, np.int64))
    library.unread = [item for item in library.unread if item.name in there - reread]
    if wanted:
        read_new(library, folder, out, wanted, progress)
    remove_thumbnails(out, thumbnails - {record.thumbnail for record in library.records})
    return reread & set(library.names())


def read_new(library: Library, folder: Path, out: Path, names: list[str], progress: Progress) -> None:
    """Read files into the library, and compute their features a batch at a time."""
    advance = progress.stage("reading", len(names))
    records: list[Record] = []
    small: list[np.ndarray] = []
    photos: list[np.ndarray] = []
    batch: list[Seen] = []

    def finish_batch() -> None:
        squares = [item.large for item in batch if item.large is not None]
        if squares:
            photos.append(photo_features(np.stack(squares)).astype(np.float16))
        batch.clear()

    with disk_errors(out):
        large = library.kind == "photos"
        for done, item in enumerate(read_files(folder, names, library.side, large), 1):
            if isinstance(item, Unread):
                library.unread.append(item)
            else:
                digest = item.digest.hex()
                thumbnail = "" if item.thumbnail is None else write_thumbnail(out, digest, item.thumbnail)
                records.append(Record(item.name, item.stamp, digest, item.width, item.height, thumbnail))
                small.append(item.small)
                batch.append(item)
            if len(batch) == BATCH:
                finish_batch()
            advance(done)
        finish_batch()
    if records:
        library.add(records, np.stack(small), np.concatenate(photos) if photos else None)


def found_groups(library: Library, settings: Settings, before: Groups | None, progress: Progress) -> Groups:
    """Group all images; groups that are mostly the same as before keep their numbers."""
    advance = progress.stage("grouping", 4)
    projection = Projection.fit(library.kind, library.small, library.photos, NEIGHBOURS, settings.seed)
    points = projection.points(library.small, library.photos)
    advance(1)
    graph = neighbour_graph(points)
    advance(2)
    group_of_node = group_nodes(points, graph, settings.groups, projection.separates, settings.seed)
    advance(3)
    usual = usual_distance(graph)
    fit = fit_of(group_of_node, group_of_node[graph.near], graph.distance, usual[graph.near])
    farthest = fence(fit.distance)
    odd = fit.distance > farthest
    # A group must keep an image, so a group of odd images only is an ordinary one.
    for number in np.unique(group_of_node):
        members = group_of_node == number
        if odd[members].all():
            odd[members] = False
    group_of_node[odd] = ODD
    group = group_of_node[graph.node]
    inside = group != ODD
    group[inside] = numbered(group[inside])

    # Numbers follow the order of the page, unless a group had a number before.
    centres = np.stack([points[group == number].mean(0) for number in range(int(group.max()) + 1)])
    number = stable_numbers(library, group, ordered(centres)[0].tolist(), before)
    group[inside] = number[group[inside]]
    groups = Groups(
        names=library.names(),
        group=group,
        points=points,
        probability=probabilities(fit, odd, graph),
        usual=usual[graph.node],
        near=graph_rows(graph),
        projection=projection,
        farthest=farthest,
        wanted=settings.groups,
    )
    advance(4)
    return groups


def probabilities(fit: Fit, odd: np.ndarray, graph: Graph) -> np.ndarray:
    """The probability of each image's group; 0 for the odd ones."""
    return np.where(odd, 0.0, fit.probability)[graph.node]


def stable_numbers(
    library: Library, group: np.ndarray, order: list[int], before: Groups | None
) -> Int[np.ndarray, " J"]:
    """A number for each group: that of the old group with which it shares most images of both, or a new one."""
    number = np.full(len(order), -1)
    used: set[int] = set()
    free = 0
    if before is not None:
        free = int(before.group.max()) + 1
        old = dict(zip(before.names, before.group.tolist(), strict=True))
        old_group = np.array([old.get(name, ODD) for name in library.names()])
        overlaps = []
        for new in order:
            members = group == new
            for candidate in set_of(old_group[members]):
                both = np.sum(members & (old_group == candidate))
                either = np.sum(members | (old_group == candidate))
                overlaps.append((both / either, new, candidate))
        for share, new, candidate in sorted(overlaps, reverse=True):
            if share >= 1 / 3 and number[new] < 0 and candidate not in used:
                number[new] = candidate
                used.add(candidate)
    for new in order:
        if number[new] < 0:
            number[new] = free
            free += 1
    return number


def extend_groups(groups: Groups, library: Library, new: set[str]) -> None:
    """Remove images that are gone from the groups, and put each new image where most of its neighbours are."""
    names = library.names()
    row_of = {name: row for row, name in enumerate(groups.names) if name not in new}
    groups.keep(np.array([row_of[name] for name in names if name in row_of], np.int64))
    # What was read again is at the end of the library.
    added = np.arange(len(groups.names), len(names))
    if len(added):
        photos = None if library.photos is None else library.photos[added]
        points = groups.projection.points(library.small[added], photos)
        inside = np.flatnonzero(groups.group != ODD)
        assigned = assign(points, groups.points[inside], groups.group[inside], groups.usual[inside])
        odd = assigned.fit.distance > groups.farthest
        nearest_row = inside[assigned.nearest]
        groups.names += names[len(groups.names) :]
        groups.group = np.append(groups.group, np.where(odd, ODD, assigned.group))
        groups.probability = np.append(groups.probability, np.where(odd, 0.0, assigned.fit.probability))
        groups.usual = np.append(groups.usual, groups.usual[nearest_row])
        groups.points = np.concatenate([groups.points, points])
        groups.near = np.concatenate([groups.near, near_rows(points, groups.points)])


def near_rows(points: np.ndarray, others: np.ndarray) -> Int[np.ndarray, "n k"]:
    """The rows of the nearest of other images."""
    k = min(NEIGHBOURS + 1, len(others))
    near = nearest(torch.from_numpy(points), torch.from_numpy(others), k)
    padding = NEIGHBOURS + 1 - k
    return np.pad(near, ((0, 0), (0, padding)), mode="edge").astype(np.int32)


def graph_rows(graph: Graph) -> Int[np.ndarray, "n k"]:
    """For each image the row of its node, then those of the node's neighbours."""
    k = graph.near.shape[1]
    rows = np.empty((len(graph.rows), NEIGHBOURS + 1), np.int32)
    rows[:] = graph.rows[:, None]
    rows[:, 1 : k + 1] = graph.rows[graph.near]
    return rows[graph.node]


def duplicates_of(library: Library, groups: Groups) -> Duplicates:
    """Duplicates among all images: those that are near each other by their points are compared."""
    count, k = groups.near.shape
    pairs = np.stack([np.repeat(np.arange(count), k), groups.near.ravel()], 1)
    sizes = np.array([[record.width, record.height] for record in library.records])
    digests = [bytes.fromhex(record.digest) for record in library.records]
    modified = np.array([record.stamp.modified for record in library.records])
    return find_duplicates(digests, library.small, sizes, modified, pairs)
