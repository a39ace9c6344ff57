"""Archives read member by member: nothing is unpacked by the archive's own paths, and sizes are bounded."""

import errno
import gzip
import io
import lzma
import struct
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Protocol

from capspoe.errors import DataError

CHUNK = 1 << 20
MOST_MEMBERS = 10_000
MOST_DIRECTORY = 1 << 20  # bytes of the list of members that a zip file has
MOST_HEAD = 1 << 14  # bytes of what stands before one member of a tar file
HEADS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
DAMAGE = (
    gzip.BadGzipFile,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    RuntimeError,  # a zip member that is encrypted, or compressed in a way that zipfile does not know
    struct.error,  # and what zipfile and tarfile let through when a header lies
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    TypeError,  # tarfile, on a gzip head that is cut short
)


class Readable(Protocol):
    """Anything that gives bytes when asked for so many."""

    def read(self, size: int, /) -> bytes: ...


def read_zip(archive: Path, wanted: Mapping[str, int]) -> Iterator[tuple[str, IO[bytes]]]:
    """Each wanted member of a zip file (a wheel is one) as (name, stream); `wanted` gives its most bytes."""
    with damage_in(archive), open_zip(archive) as zipped:
        _check_names((info.filename for info in zipped.infolist()), archive)
        there = {info.filename: info for info in zipped.infolist()}
        _check_all_there(wanted, there, archive)
        for name, most in wanted.items():
            _check_size(name, there[name].file_size, most, archive)
            with zipped.open(there[name]) as stream:
                yield name, stream


@contextmanager
def open_zip(archive: Path) -> Iterator[zipfile.ZipFile]:
    """A zip file whose directory is small enough to be read: zipfile reads all of it at once."""
    with _Cautious(archive) as file, zipfile.ZipFile(file) as zipped:
        if len(zipped.filelist) > MOST_MEMBERS:
            raise _too_many(archive)
        file.most = None
        yield zipped


class _Cautious(io.FileIO):
    """A file that refuses to be read in large pieces, until it is known what it is."""

    most: int | None = MOST_DIRECTORY

    def read(self, size: int | None = -1, /) -> bytes:
        if self.most is not None and size is not None and size > self.most:
            raise _too_many(Path(str(self.name)))
        return super().read(-1 if size is None else size) or b""


def _too_many(archive: Path) -> DataError:
    return DataError(f"{archive.name}: has more than {MOST_MEMBERS} members; not unpacked")


def read_tar(archive: Path, wanted: Mapping[str, int]) -> Iterator[tuple[str, IO[bytes]]]:
    """Each wanted member of a tar file, compressed or not, in the archive's order, as (name, stream)."""
    with damage_in(archive), archive.open("rb") as file:
        yield from _tar_members(file, "r|*", wanted, archive)


def read_deb(archive: Path, wanted: Mapping[str, int]) -> Iterator[tuple[str, IO[bytes]]]:
    """Each wanted file of a Debian package; dpkg-deb only decompresses, so no script of the package runs."""
    command = ["dpkg-deb", "--fsys-tarfile", str(archive)]
    with (
        damage_in(archive),
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process,
    ):
        assert process.stdout is not None
        try:
            yield from _tar_members(process.stdout, "r|", wanted, archive)
        finally:
            process.kill()


def copy(source: Readable, target: Path, most: int, what: str) -> None:
    """Copies a stream into a new file, stopping with an error after `most` bytes."""
    with target.open("xb") as file:
        for chunk in bounded(source, most, what):
            file.write(chunk)


def gunzip(source: IO[bytes], target: Path, most: int, what: str) -> None:
    """Decompresses a gzip stream into a new file of at most `most` bytes: a bomb fills no disk."""
    with gzip.GzipFile(fileobj=source) as stream:
        copy(stream, target, most, what)


def bounded(source: Readable, most: int, what: str) -> Iterator[bytes]:
    """The chunks of a stream that must not exceed `most` bytes."""
    left = most
    while True:
        with damage_in(what):
            chunk = source.read(min(CHUNK, left + 1))
        if not chunk:
            return
        left -= len(chunk)
        if left < 0:
            raise DataError(f"{what}: holds more than the {most} bytes it should")
        yield chunk


@contextmanager
def damage_in(what: Path | str) -> Iterator[None]:
    """Turns what the decompressors raise on damaged bytes into one clear error."""
    name = what.name if isinstance(what, Path) else what
    try:
        yield
    except EOFError as error:
        raise DataError(f"{name}: the compressed file is cut short") from error
    except DAMAGE as error:
        raise DataError(f"{name}: the compressed file is damaged ({error})") from error
    except OSError as error:
        # EINVAL: a place before the beginning of the file; none: not the disk but bz2, of bytes that are not its own.
        if error.errno not in (errno.EINVAL, None):
            raise
        raise DataError(f"{name}: the compressed file is damaged ({error.strerror or error})") from error


def _tar_members(
    file: IO[bytes], mode: str, wanted: Mapping[str, int], archive: Path
) -> Iterator[tuple[str, IO[bytes]]]:
    found: set[str] = set()
    with tarfile.open(fileobj=file, mode=mode, tarinfo=_PlainMember) as tarred:  # type: ignore[call-overload]
        for count, member in enumerate(tarred):
            if count >= MOST_MEMBERS:
                raise _too_many(archive)
            tarred.members = []  # which would keep every one of them
            _check_names([member.name], archive)
            name = member.name.removeprefix("./")
            if name not in wanted or name in found:
                continue
            if not member.isreg():
                raise DataError(f"{archive.name}: member {name} is not an ordinary file; not unpacked")
            _check_size(name, member.size, wanted[name], archive)
            stream = tarred.extractfile(member)
            assert stream is not None
            found.add(name)
            yield name, stream
            if len(found) == len(wanted):
                return
    _check_all_there(wanted, found, archive)


class _PlainMember(tarfile.TarInfo):
    """A member's head. What tarfile would read into memory before anybody can look at it is refused."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_PlainMember":
        member = super().frombuf(buf, encoding, errors)
        if member.type == tarfile.GNUTYPE_SPARSE or (member.type in HEADS and member.size > MOST_HEAD):
            raise tarfile.ReadError("a member's head is too long")
        return member

    def _proc_gnusparse_10(self, *_: object) -> None:
        raise tarfile.ReadError("a member's head is too long")


def _check_names(names: Iterable[str], archive: Path) -> None:
    for name in names:
        posix, windows = PurePosixPath(name), PureWindowsPath(name)
        if posix.is_absolute() or windows.drive or windows.root or ".." in windows.parts:
            raise DataError(f"{archive.name}: member {name!r} points outside the archive; not unpacked")


def _check_size(name: str, size: int, most: int, archive: Path) -> None:
    if size > most:
        raise DataError(f"{archive.name}: member {name} has {size} bytes, more than the {most} it should")


def _check_all_there(wanted: Iterable[str], there: Iterable[str], archive: Path) -> None:
    missing = sorted(set(wanted) - set(there))
    if missing:
        raise DataError(f"{archive.name}: has no member {missing[0]}")
