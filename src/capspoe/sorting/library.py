"""What is known about the images of a folder, kept in OUT/cache between runs.

`images.npz` has what was read of each image, `groups.npz` the groups that were found. Both may be deleted at any
time: the next run computes them again.
"""

import json
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt8

from capspoe.atomic import npz_writer
from capspoe.sorting.features import Kind, Projection
from capspoe.sorting.reading import Stamp, Unread

VERSION = 2
ARRAYS = ("group", "points", "probability", "usual", "near")  # of `Groups`
PNG = b"\x89PNG"  # the first bytes of such a file
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, RecursionError)


@dataclass(frozen=True)
class Record:
    """What was read of an image: `thumbnail` is its name in OUT/thumbnails."""

    name: str
    stamp: Stamp
    digest: str
    width: int
    height: int
    thumbnail: str


@dataclass
class Library:
    """Images in the order in which they were first seen.

    small, photos    (n, S, S, 3) and (n, 1280): row k belongs to record k; photos is None if they were not computed
    unread           files that cannot be read
    """

    folder: str
    side: int
    kind: Kind
    records: list[Record] = field(default_factory=list)
    small: UInt8[np.ndarray, "n S S 3"] = field(default_factory=lambda: np.empty((0, 0, 0, 3), np.uint8))
    photos: Float[np.ndarray, "n V"] | None = None
    unread: list[Unread] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def names(self) -> list[str]:
        return [record.name for record in self.records]

    def add(self, records: Sequence[Record], small: np.ndarray, photos: np.ndarray | None) -> None:
        """Append images; features of photographs are kept only if all images have them."""
        if not self.records:
            self.small = small
            self.photos = photos
        else:
            self.small = np.concatenate([self.small, small])
            known = self.photos is not None and photos is not None
            self.photos = np.concatenate([self.photos, photos]) if known else None
        self.records += records

    def keep(self, rows: Int[np.ndarray, " m"]) -> None:
        """Forget all other images."""
        self.records = [self.records[row] for row in rows.tolist()]
        self.small = self.small[rows]
        if self.photos is not None:
            self.photos = self.photos[rows]

    def save(self, cache: Path) -> None:
        described = {
            "version": VERSION,
            "folder": self.folder,
            "side": self.side,
            "kind": self.kind,
            "records": [[r.name, *r.stamp, r.digest, r.width, r.height, r.thumbnail] for r in self.records],
            "unread": [[item.name, *item.stamp, item.reason] for item in self.unread],
        }
        with npz_writer(cache / "images.npz") as file:
            file.add("described", as_array(described))
            file.add("small", self.small)
            if self.photos is not None:
                file.add("photos", self.photos)


def load_library(cache: Path) -> Library | None:
    """The library that was saved, or None if there is none or it cannot be used."""
    with suppress(*UNREADABLE), np.load(cache / "images.npz", allow_pickle=False) as file:
        described = from_array(file["described"])
        if described["version"] != VERSION:
            return None
        records = []
        for name, size, modified, digest, width, height, thumbnail in described["records"]:
            records.append(Record(name, Stamp(size, modified), digest, width, height, thumbnail))
        unread = [Unread(name, Stamp(size, when), reason) for name, size, when, reason in described["unread"]]
        photos = file.get("photos")
        small = file["small"]
        if len(small) != len(records) or (photos is not None and len(photos) != len(records)):
            return None
        return Library(described["folder"], described["side"], described["kind"], records, small, photos, unread)
    return None


@dataclass
class Groups:
    """Groups of the images of a library; row k of every array belongs to the image `names[k]`.

    group        (n,): the number of the group, which is its name too (group-07); -1 is odd
    points       (n, D), in the components of `projection`
    probability  (n,): how clearly the image belongs to its group
    usual        (n,): usual distance in the surroundings of the image
    near         (n, k): rows of the nearest images
    farthest     relative distance from which on new images are odd
    wanted       the number of groups that was asked for; None if it was estimated
    """

    names: list[str]
    group: Int[np.ndarray, " n"]
    points: Float[np.ndarray, "n D"]
    probability: Float[np.ndarray, " n"]
    usual: Float[np.ndarray, " n"]
    near: Int[np.ndarray, "n k"]
    projection: Projection
    farthest: float
    wanted: int | None

    def keep(self, rows: Int[np.ndarray, " m"]) -> None:
        """Forget all other images."""
        place = np.full(len(self.names), -1, np.int32)
        place[rows] = np.arange(len(rows))
        self.names = [self.names[row] for row in rows.tolist()]
        for name in ARRAYS:
            setattr(self, name, getattr(self, name)[rows])
        near = place[self.near]
        # A neighbour that is gone is replaced by the image itself.
        self.near = np.where(near < 0, np.arange(len(rows), dtype=np.int32)[:, None], near)

    def save(self, cache: Path) -> None:
        described = {
            "version": VERSION,
            "names": self.names,
            "view": self.projection.view,
            "colours": self.projection.colours,
            "scales": list(self.projection.scales),
            "farthest": self.farthest,
            "wanted": self.wanted,
        }
        with npz_writer(cache / "groups.npz") as file:
            file.add("described", as_array(described))
            for name in ARRAYS:
                file.add(name, getattr(self, name))
            file.add("centre", self.projection.centre)
            file.add("mean", self.projection.mean)
            file.add("components", self.projection.components)


def load_groups(cache: Path) -> Groups | None:
    """The groups that were saved, or None if there are none or they cannot be used."""
    with suppress(*UNREADABLE), np.load(cache / "groups.npz", allow_pickle=False) as file:
        described = from_array(file["described"])
        if described["version"] != VERSION:
            return None
        arrays = {name: file[name] for name in ARRAYS}
        if any(len(array) != len(described["names"]) for array in arrays.values()):
            return None
        return Groups(
            names=described["names"],
            **arrays,
            projection=Projection(
                described["view"],
                described["colours"],
                tuple(map(float, described["scales"])),
                file["centre"],
                file["mean"],
                file["components"],
            ),
            farthest=described["farthest"],
            wanted=described["wanted"],
        )
    return None


def as_array(described: dict[str, Any]) -> UInt8[np.ndarray, " n"]:
    """JSON as bytes; file names that are no UTF-8 keep their own bytes."""
    return np.frombuffer(json.dumps(described).encode(), np.uint8)


def from_array(array: UInt8[np.ndarray, " n"]) -> dict[str, Any]:
    return json.loads(array.tobytes())


def thumbnail_path(out: Path, name: str) -> Path:
    return out / "thumbnails" / name


def write_thumbnail(out: Path, digest: str, content: bytes) -> str:
    """Write a thumbnail under the digest of its image, in one of 256 folders; returns its name in OUT/thumbnails."""
    kind = "png" if content.startswith(PNG) else "jpg"
    name = f"{digest[:2]}/{digest}.{kind}"
    path = thumbnail_path(out, name)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return name


def remove_thumbnails(out: Path, names: set[str]) -> None:
    """Remove thumbnails that no image needs any more."""
    for name in names:
        with suppress(OSError):
            thumbnail_path(out, name).unlink()
