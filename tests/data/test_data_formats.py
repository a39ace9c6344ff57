"""The idx and CIFAR-10 formats."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capspoe.data.catalogue import CATALOGUE, CachedFile
from capspoe.data.formats import encode_cifar, encode_idx, open_idx, read_cifar
from capspoe.errors import DataError

IDX = encode_idx(np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4))


@given(st.lists(st.tuples(st.integers(0, 39), st.binary(max_size=6), st.integers(0, 6)), max_size=4))
@settings(max_examples=300, deadline=None)
def test_any_bytes_give_what_they_say_or_the_error(tmp_path_factory, changes):
    """Each change replaces some bytes by others, perhaps by more or fewer."""
    data = bytearray(IDX)
    for start, some, length in changes:
        data[start : start + length] = some
    path = tmp_path_factory.getbasetemp() / "some-idx"
    path.write_bytes(data)
    with suppress(DataError):
        assert encode_idx(open_idx(path)) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (IDX[:-1], r"does not match its header \(2, 3, 4\)"),
        (IDX + b"\0", "does not match its header"),
        (IDX[:4] + b"\xff" * 12 + IDX[16:], "does not match its header"),
        (IDX[:10], "does not match its header"),
        (b"\0\0\x08\x01\0\0\0\0", "does not match its header"),
        (b"", "not an idx file"),
        (b"\x1f\x8b\x08\x00" + IDX, "not an idx file"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "not an idx file of unsigned bytes"),
        (b"\0\0\x08\x00", "not an idx file of unsigned bytes with 1 to 4 axes"),
        (b"\0\0\x08\x64" + b"\0\0\0\x01" * 100 + b"x", "not an idx file"),
    ],
)
def test_idx_errors_say_what_is_wrong(tmp_path, data, message):
    (tmp_path / "some-idx").write_bytes(data)
    with pytest.raises(DataError, match=f"some-idx: .*{message}"):
        open_idx(tmp_path / "some-idx")


def test_cifar_splits(cache):
    """The layout is a label, then the red, the green and the blue plane."""
    names = ("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin")
    entry = CATALOGUE["cifar10"]._replace(name="toy", files=tuple(CachedFile(name, 0, "") for name in names))
    entry.folder.mkdir(parents=True)
    for k, name in enumerate(names):
        record = bytes([k]) + bytes([10 * k]) * 1024 + bytes([1]) * 1024 + bytes([2]) * 1024
        (entry.folder / name).write_bytes(2 * record)
    for split, expected in (("train", [0, 0, 1, 1]), ("test", [2, 2]), ("all", [0, 0, 1, 1, 2, 2])):
        pixels, labels = read_cifar(entry, split)
        assert labels.tolist() == expected
        assert (pixels == [[[[10 * k, 1, 2]]] for k in expected]).all()
    written = encode_cifar(pixels, labels)
    assert written == b"".join((entry.folder / name).read_bytes() for name in names)
