"""The chain: cache, then each source in turn, until every file has the checksum it should have."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from capspoe.data.cache import (
    Report,
    install,
    is_disk_trouble,
    locked,
    need_space,
    set_aside,
    sha256,
    staging,
)
from capspoe.data.entries import CanonicalFile, Entry, info
from capspoe.data.sources import SourceOfFiles
from capspoe.errors import DataError

OK, MISSING, WRONG_SIZE, WRONG_CHECKSUM = "ok", "missing", "wrong size", "wrong checksum"


@dataclass(frozen=True)
class FileStatus:
    """One file of a data set, as it was found."""

    name: str
    path: Path
    status: str
    expected: str
    found: str | None


@dataclass(frozen=True)
class Verification:
    """What `verify` found; a data set that ships with a library has no files and is always in order."""

    name: str
    files: tuple[FileStatus, ...]

    @property
    def ok(self) -> bool:
        return all(file.status == OK for file in self.files)


def fetch(name: str, offline: bool = False, report: Report | None = None) -> Path:
    """Makes sure that a data set is in the cache, byte for byte, and returns its folder there.

    `report` receives one line per attempt (the default prints it on stderr). With `offline` nothing but the
    cache is asked. A file that is not what it should be is renamed to *.bad and fetched again.
    """
    entry, report = info(name), report or _to_stderr
    bad = _bad_files(entry)
    if bad and offline:
        raise DataError(
            f"{name} is not in {entry.folder} ({_summary(bad)}) and nothing is fetched offline; "
            f"run `capspoe data fetch {name}` with a network, or copy the files there"
        )
    if bad:
        with locked(entry.folder, report):
            _fetch_missing(entry, report)
    return entry.folder


def verify(name: str) -> Verification:
    """Reads every cached file of a data set and compares its SHA-256; changes nothing."""
    entry = info(name)
    return Verification(name, tuple(_status(file, entry.folder) for file in entry.files))


def _fetch_missing(entry: Entry, report: Report) -> None:
    """Tries the sources in order, with the lock held: another process may have been here meanwhile."""
    for status in _bad_files(entry):
        if status.status != MISSING:
            report(f"{entry.name}: {status.name} has a {status.status}; kept as {status.name}.bad")
            set_aside(status.path, entry.folder)
    reasons: list[str] = []
    for source in entry.sources:
        wanted = {file.name: file for file in entry.files if not (entry.folder / file.name).exists()}
        if not wanted:
            break
        report(f"{entry.name}: asking {source.label} for {len(wanted)} files")
        reason = _attempt(entry, source, wanted)
        if reason:
            report(f"{entry.name}: no luck with {source.label}: {reason}")
            reasons.append(f"{source.label}: {reason}")
    missing = _bad_files(entry)
    if missing:
        raise DataError(
            f"{entry.name} could not be had from any source ({'; '.join(reasons)}); "
            f"connect to a network, or put {', '.join(file.name for file in missing)} into {entry.folder}"
        )
    report(f"{entry.name}: complete and checked in {entry.folder}")


def _attempt(entry: Entry, source: SourceOfFiles, wanted: Mapping[str, CanonicalFile]) -> str:
    """One source: whatever it brings with the right checksum is installed; the reason why not, or nothing."""
    needed = sum(file.bytes for file in wanted.values()) + entry.download_mb * 1_000_000
    with staging(entry.folder) as stage:
        need_space(stage, needed)
        failure = ""
        try:
            source.fetch({name: file.bytes for name, file in wanted.items()}, stage)
        except DataError as error:
            failure = str(error)
        except OSError as error:
            if is_disk_trouble(error):
                raise
            failure = str(error)
        found = [_status(file, stage) for file in wanted.values()]
        for status in found:
            if status.status == OK:
                install(status.path, entry.folder / status.name)
        # A file that the source did not finish is no evidence; one that it did, with other bytes, is kept.
        wrong = (
            [] if failure else [status for status in found if status.status in (WRONG_SIZE, WRONG_CHECKSUM)]
        )
        for status in wrong:
            set_aside(status.path, entry.folder)
    return failure or ", ".join(f"{status.name} has a {status.status}, kept as *.bad" for status in wrong)


def _bad_files(entry: Entry) -> list[FileStatus]:
    return [status for file in entry.files if (status := _status(file, entry.folder)).status != OK]


def _status(file: CanonicalFile, folder: Path) -> FileStatus:
    path, found = folder / file.name, None
    try:
        if path.stat().st_size != file.bytes:
            status = WRONG_SIZE
        else:
            found = sha256(path)
            status = OK if found == file.sha256 else WRONG_CHECKSUM
    except (FileNotFoundError, NotADirectoryError):
        status = MISSING
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    return FileStatus(file.name, path, status, file.sha256, found)


def _summary(bad: list[FileStatus]) -> str:
    return ", ".join(f"{file.name}: {file.status}" for file in bad)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr)
