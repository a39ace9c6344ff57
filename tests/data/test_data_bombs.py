"""Small files that stand for a million members or endless heads: refused, in little memory."""

import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from capspoe import data
from capspoe.data import archives
from capspoe.data.archives import read_tar, read_zip
from capspoe.errors import DataError

MILLION = 1_000_000
MB = 1 << 20


def zip_of(path, count, content=b"abc", name="x"):
    """A zip file whose directory names one member `count` times."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        zipped.writestr(name, content)
    made = buffer.getvalue()
    start, end = made.index(b"PK\1\2"), made.index(b"PK\5\6")
    directory = made[start:end] * count
    few = min(count, 0xFFFF)
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, few, few, len(directory), start, 0)
    path.write_bytes(made[:start] + directory + tail)
    return path


def repeated(path, first, block, count):
    """A gzip file of `first` and `count` times `block`, made in the time that one takes."""
    made = zlib.compressobj(1, zlib.DEFLATED, -15)
    head = made.compress(first) + made.flush(zlib.Z_FULL_FLUSH)
    once = made.compress(block) + made.flush(zlib.Z_FULL_FLUSH)
    path.write_bytes(gzip.compress(b"")[:10] + head + once * count)
    return path


def member(name="x", kind=tarfile.REGTYPE, size=0):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def refused(message, read):
    """It is refused with this message, and the memory for it was never taken."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=message):
            read()
        assert tracemalloc.get_traced_memory()[1] < 20 * MB
    finally:
        tracemalloc.stop()


def all_of(read, path):
    return lambda: [stream.read(1) for _, stream in read(path, {"wanted": 10})]


@pytest.fixture
def few(monkeypatch):
    """Tracing memory is slow: a thousand members are many here."""
    monkeypatch.setattr(archives, "MOST_MEMBERS", 1000)


def test_a_zip_with_a_million_members_is_refused(tmp_path, few):
    refused("more than 1000 members", all_of(read_zip, zip_of(tmp_path / "a.zip", MILLION)))
    refused("more than 1000 members", all_of(read_zip, zip_of(tmp_path / "b.zip", 1001)))
    refused("has no member wanted", all_of(read_zip, zip_of(tmp_path / "c.zip", 1000)))


@pytest.mark.parametrize(("count", "message"), [(MILLION, "more than"), (900, "which of its arrays .*, ...")])
def test_an_npz_with_a_million_arrays_is_refused(tmp_path, few, count, message):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 3, 3), np.uint8))
    path = zip_of(tmp_path / "x.npz", count, buffer.getvalue(), "x1.npy")
    refused(message, lambda: data.load(path))


def test_a_tar_with_a_million_members_is_refused(tmp_path, few):
    archive = repeated(tmp_path / "a.tgz", b"", member() * 1000, 1000)
    refused("more than 1000 members", all_of(read_tar, archive))


def test_a_tar_keeps_none_of_its_members(tmp_path, few):
    """A head for all members is copied into each of them."""
    words = b"".join(b"%d %s" % (len(w) + 3, w) for w in (b"k%04d=v\n" % k for k in range(1000)))
    first = member(kind=tarfile.XGLTYPE, size=len(words)) + words + bytes(-len(words) % 512)
    refused("more than 1000 members", all_of(read_tar, repeated(tmp_path / "a.tgz", first, member(), 1001)))


@pytest.mark.parametrize("kind", archives.HEADS)
def test_a_long_head_is_refused(tmp_path, kind):
    archive = repeated(tmp_path / "a.tgz", member(kind=kind, size=200 * MB), bytes(MB), 200)
    refused("head is too long", all_of(read_tar, archive))


def test_a_sparse_member_is_refused(tmp_path):
    """Its map goes on for as long as it says so."""
    more = struct.pack("504s?7x", b"0" * 504, True)
    first = bytearray(member(kind=tarfile.GNUTYPE_SPARSE))
    first[482] = 1
    first[148:156] = b"%06o\0 " % (sum(first[:148]) + sum(first[156:]) + 8 * 32)
    refused(
        "head is too long", all_of(read_tar, repeated(tmp_path / "a.tgz", bytes(first), more * 1000, 100))
    )


def test_a_sparse_map_before_the_content_is_refused(tmp_path):
    words = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
    first = member(kind=tarfile.XHDTYPE, size=len(words)) + words + bytes(-len(words) % 512)
    first += member(size=200 * MB) + b"99999999\n\n" + b"0\n" * 251
    archive = repeated(tmp_path / "a.tgz", first, b"0\n" * (MB // 2), 100)
    refused("head is too long", all_of(read_tar, archive))
