"""The idx and CIFAR readers: the right array or the clear error, for any bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capspoe.data.cifar import RECORD, decode_cifar, encode_cifar
from capspoe.data.idx import encode_idx, open_idx
from capspoe.errors import DataError

IDX = encode_idx(np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4))
CIFAR = encode_cifar(np.random.default_rng(1).integers(0, 256, (3, 32, 32, 3), np.uint8), np.array([0, 9, 4]))


@st.composite
def mutated(draw, data):
    """Bytes with a few changed, removed, inserted or cut off; the head is hit as often as the rest."""
    data = bytearray(data)
    for _ in range(draw(st.integers(0, 4))):
        where = draw(st.integers(0, min(len(data), 20)) | st.integers(0, len(data)))
        some = draw(st.binary(min_size=0, max_size=6))
        kind = draw(st.sampled_from(["change", "insert", "remove", "cut"]))
        if kind == "change":
            data[where : where + len(some)] = some[: len(data) - where]
        elif kind == "insert":
            data[where:where] = some
        elif kind == "remove":
            del data[where : where + len(some)]
        else:
            del data[where:]
    return bytes(data)


def tried(read, *arguments):
    """(result, None) or (None, the clear error's text); anything else that is raised fails the test."""
    try:
        return read(*arguments), None
    except DataError as error:
        return None, str(error)


@given(mutated(IDX))
@settings(max_examples=400, deadline=None)
def test_idx_reads_exactly_what_the_bytes_say_or_refuses(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "some-idx"
    path.write_bytes(data)
    values, error = tried(open_idx, path)
    if error:
        assert "\n" not in error
    else:
        assert values.dtype == np.uint8
        assert encode_idx(values) == data


@given(mutated(CIFAR))
@settings(max_examples=200, deadline=None)
def test_cifar_reads_exactly_what_the_bytes_say_or_refuses(data):
    decoded, error = tried(decode_cifar, data)
    if error:
        assert "\n" not in error
    else:
        pixels, labels = decoded
        assert pixels.shape == (len(data) // RECORD, 32, 32, 3)
        assert labels.max() < 10
        assert encode_cifar(pixels, labels) == data


def test_cifar_layout_is_label_then_planes():
    data = bytes([7]) + bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024
    pixels, labels = decode_cifar(data)
    assert labels.tolist() == [7]
    assert (pixels == [1, 2, 3]).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (IDX[:-1], "promises 24 bytes but 23 follow"),
        (IDX + b"\0", "promises 24 bytes but 25 follow"),
        (IDX[:4] + b"\xff" * 12 + IDX[16:], "promises 79228162458924105385300197375 bytes"),
        (IDX[:10], "cut short"),
        (b"", "not an idx file"),
        (b"\x1f\x8b\x08\x00" + IDX, "not an idx file"),
        (b"\0\0\x0d\x01" + b"\0\0\0\x01" + b"\0\0\0\0", "type 0x0d"),
        (b"\0\0\x08\x01" + b"\0\0\0\0", "promises no values"),
        (b"\0\0\x08\x00", "of 0 axes"),
        (b"\0\0\x08\x64" + b"\0\0\0\x01" * 100 + b"x", "of 100 axes"),
    ],
)
def test_idx_errors_say_what_is_wrong(tmp_path, data, message):
    (tmp_path / "some-idx").write_bytes(data)
    with pytest.raises(DataError, match=f"some-idx: .*{message}"):
        open_idx(tmp_path / "some-idx")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (CIFAR[:-1], "9218 bytes are not a whole number of 3073-byte images"),
        (b"", "0 bytes are not a whole number"),
        (CIFAR[:RECORD] + b"\x0a" + CIFAR[RECORD + 1 :], "image 1 has label 10"),
    ],
)
def test_cifar_errors_say_what_is_wrong(data, message):
    with pytest.raises(DataError, match=message):
        decode_cifar(data, "some file")


def test_a_missing_idx_file_is_a_clear_error(tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        open_idx(tmp_path / "none")
