"""Images in .npy and .npz files, good and bad, and the rules for their values."""

import pickle
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from capspoe.data import Prepare, arrays, load, open_dataset
from capspoe.errors import DataError, InputError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 9, 7), np.uint8)
LABELS = np.arange(30) % 4


@pytest.fixture
def npy(tmp_path):
    """npy(array) saves it and returns the path."""

    def write(array, **options):
        np.save(tmp_path / "images.npy", array, **options)
        return tmp_path / "images.npy"

    return write


@pytest.fixture
def npz(tmp_path):
    """npz(name=array, ...) saves them, compressed or not, and returns the path."""

    def write(**arrays):
        (np.savez_compressed if len(arrays) % 2 else np.savez)(tmp_path / "images.npz", **arrays)
        return tmp_path / "images.npz"

    return write


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (PIXELS, PIXELS[..., None]),
        (PIXELS[..., None], PIXELS[..., None]),
        (PIXELS[:, None], PIXELS[..., None]),
        (np.asfortranarray(PIXELS), PIXELS[..., None]),
        (np.stack([PIXELS] * 3, 1), np.stack([PIXELS] * 3, -1)),
        (np.stack([PIXELS] * 5, -1), np.stack([PIXELS] * 5, -1)),
        (PIXELS / 255, PIXELS[..., None]),
        (PIXELS.astype(">f8"), PIXELS[..., None]),
        (PIXELS.astype(np.int64), PIXELS[..., None]),
        (PIXELS > 99, (PIXELS > 99)[..., None] * np.uint8(255)),
    ],
)
def test_every_shape_and_type_gives_the_same_images(npy, npz, array, expected):
    for path in (npy(array), npz(images=array)):
        images = load(path, "all")
        assert images.pixels.dtype == np.uint8
        assert np.array_equal(images.pixels, expected)
        assert images.labels is None


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (PIXELS - 1.0, r"values from -1 to 254; pixels must be in \[0, 1\] or \[0, 255\]"),
        (PIXELS * 2.0, r"values from 0 to 510"),
        (np.where(PIXELS == 3, np.nan, PIXELS), "not finite"),
        (PIXELS.astype(np.int16) - 1, "values from -1 to 254; pixels must be in 0 to 255"),
        ((PIXELS > 99).astype(np.uint8), "only 0 and 1; save black and white images as bool"),
        (PIXELS * 1j, "values of type complex128 are not pixels"),
        (PIXELS.astype("U3"), "values of type <U3 are not pixels"),
        (PIXELS[0], r"shape \(9, 7\) is not \(n, H, W\)"),
        (np.stack([PIXELS] * 8, -1), r"shape \(30, 9, 7, 8\) is not"),
        (PIXELS[:0], "images.np"),
        (np.float64(3), r"shape \(\) is not"),
        (np.array([{"a": 1}], object), "holds Python objects"),
    ],
)
def test_arrays_that_are_not_images_are_refused(npy, npz, array, message):
    for path in (npy(array, allow_pickle=True), npz(images=array)):
        with pytest.raises(DataError, match=message) as caught:
            load(path, "all")
        assert "\n" not in str(caught.value)


class Trap:
    def __reduce__(self):
        return print, ("the trap ran",)


def test_pickles_are_never_run(npy, npz, tmp_path, capsys):
    (tmp_path / "pickle.npy").write_bytes(pickle.dumps(Trap()))
    with zipfile.ZipFile(tmp_path / "pickle.npz", "w") as zipped:
        zipped.writestr("images.npy", pickle.dumps(Trap()))
    objects = np.array([Trap()] * 30, object)
    for path in (npy(objects), npz(images=objects)):
        with pytest.raises(DataError, match="holds Python objects"):
            load(path, "all")
    for path in (tmp_path / "pickle.npy", tmp_path / "pickle.npz"):
        with pytest.raises(DataError, match="damaged, or not what its name says"):
            load(path, "all")
    with pytest.raises(DataError, match="holds Python objects"):
        load(npz(images=PIXELS, labels=objects), "all")
    assert "the trap ran" not in capsys.readouterr().out


def test_an_npz_of_very_many_arrays_is_refused(npz, monkeypatch):
    monkeypatch.setattr(arrays, "MAX_ARRAYS", 3)
    with pytest.raises(DataError, match="has more than 3 arrays"):
        load(npz(images=PIXELS, a=LABELS, b=LABELS, c=LABELS), "all")


@pytest.mark.parametrize("cut", [0, 5, 40, 200, -1])
def test_truncated_files_are_errors(npy, npz, cut):
    for path in (npy(PIXELS), npz(images=PIXELS)):
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(DataError, match=r"images\.np"):
            load(path, "all")


def test_a_header_that_promises_a_petabyte_allocates_nothing(npy, tmp_path):
    path = npy(PIXELS)
    data = path.read_bytes().replace(b"(30, 9, 7), }" + b" " * 12, b"(30, 9, 7000000000000), }")
    assert len(data) == path.stat().st_size
    path.write_bytes(data)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        zipped.writestr("images.npy", data)
    for hostile in (path, tmp_path / "x.npz"):
        with pytest.raises(DataError, match="damaged, or not what its name says"):
            load(hostile, "all")


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_changed_npy_headers_give_an_array_or_the_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "changed.npy"
    np.save(path, PIXELS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, 127))
        content[where] = data.draw(st.integers(0, 255) | st.sampled_from(b"0123456789()[]{},'uif<>"))
    path.write_bytes(content)
    with suppress(DataError, InputError):
        assert load(path, "all").pixels.dtype == np.uint8


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [
        (LABELS[:, None], LABELS, None),
        (LABELS.astype(np.float32), LABELS, None),
        (np.array(["d", "b", "c", "a"])[LABELS], np.array([3, 1, 2, 0])[LABELS], ("a", "b", "c", "d")),
        (np.array([b"y", b"x"])[LABELS % 2], 1 - LABELS % 2, ("x", "y")),
    ],
)
def test_labels_become_numbers(npz, labels, expected, classes):
    dataset = open_dataset(npz(images=PIXELS, labels=labels), "all")
    assert dataset.labels.dtype == np.int64
    assert np.array_equal(dataset.labels, expected)
    assert dataset.classes == classes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:-1], r"labels of shape \(29,\) for 30 images"),
        (np.eye(30), r"labels of shape \(30, 30\) for 30 images"),
        (LABELS + 0.5, "whole numbers"),
        (LABELS * np.nan, "whole numbers"),
        (LABELS * 1j, "labels of type complex128"),
        (LABELS - 1, "labels from -1 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(npz, labels, message):
    with pytest.raises(DataError, match=message):
        load(npz(images=PIXELS, labels=labels), "all")


@pytest.mark.parametrize(
    ("images", "labels"),
    [("images", "labels"), ("X", "Y"), ("arr_0", "arr_1"), ("data", "target"), ("x_train", "y_train")],
)
def test_usual_names_are_found(npz, images, labels):
    found = load(npz(**{images: PIXELS, labels: LABELS, "other": LABELS}), "all")
    assert np.array_equal(found.pixels[..., 0], PIXELS)
    assert np.array_equal(found.labels, LABELS)


def test_a_lone_array_needs_no_name_and_two_do(npz):
    assert len(load(npz(whatever=PIXELS, table=np.eye(3)), "all").pixels) == 30
    with pytest.raises(DataError, match=r"which of its arrays \(one, two\) are the images"):
        load(npz(one=PIXELS, two=PIXELS), "all")
    with pytest.raises(DataError, match=r"\(a0, .*, a11, \.\.\.\)"):
        load(npz(**{f"a{k}": PIXELS for k in range(20)}), "all")


@pytest.mark.parametrize(
    "names",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_own_train_and_test_are_kept(npz, names):
    text = np.array(["b", "c", "a", "d"])[LABELS]
    path = npz(**dict(zip(names, (PIXELS[:2], text[:2], PIXELS[2:], text[2:]), strict=True)))
    numbers = np.array([1, 2, 0, 3])[LABELS]
    for split, rows in (("train", slice(0, 2)), ("test", slice(2, 30)), ("all", slice(0, 30))):
        dataset = open_dataset(path, split)
        assert np.array_equal(dataset.images().pixels[..., 0], PIXELS[rows])
        assert np.array_equal(dataset.labels, numbers[rows])
        assert dataset.classes == ("a", "b", "c", "d")


def test_train_and_test_must_agree(npz):
    with pytest.raises(DataError, match="train images are"):
        load(npz(x_train=PIXELS, x_test=PIXELS[:, :5]))
    # A dark test part on the scale 0 to 255 is not mistaken for one on the scale 0 to 1.
    path = npz(x_train=PIXELS.astype(float), x_test=np.full((2, 9, 7), 1.0))
    assert load(path, "test").pixels.max() == 1


def test_split_of_an_array_is_fixed(npy):
    many = np.arange(1000, dtype=np.uint8).repeat(4).reshape(1000, 2, 2)
    train, test = (load(npy(many), split).pixels for split in ("train", "test"))
    assert len(train) + len(test) == 1000
    assert test[:5, 0, 0, 0].tolist() == [2, 32, 33, 41, 42]  # the same on every machine and version


def test_npy_is_mapped(npy):
    big = np.zeros((5000, 28, 28), np.uint8)
    big[:, 0, 0] = np.arange(5000) % 251
    dataset = open_dataset(npy(big), "all")
    assert isinstance(dataset._dataset._array.base, np.memmap)
    assert dataset.batch([4999, 3])[:, 0, 0, 0].tolist() == [4999 % 251, 3]


@pytest.mark.parametrize(
    "options",
    [{}, {"size": 10}, {"size": (12, 9), "crop": 8}, {"colour": "grey"}, {"colour": "rgb", "crop": 5}],
)
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_arrays_and_files_are_preprocessed_alike(npy, tmp_path, options, channels):
    images = RNG.integers(0, 256, (4, 20, 30, channels), np.uint8)
    (tmp_path / "files").mkdir()
    for k, image in enumerate(images):
        Image.fromarray(image[..., 0] if channels == 1 else image).save(tmp_path / "files" / f"{k}.png")
    from_array = load(npy(images), "all", **options).pixels
    assert np.array_equal(from_array, load(tmp_path / "files", "all", **options).pixels)


def test_other_channels_are_resized_but_have_no_colour(npy):
    images = RNG.integers(0, 256, (4, 9, 9, 2), np.uint8)
    resized = load(npy(images), "all", size=6).pixels
    assert np.array_equal(resized[..., 1:], load(npy(images[..., 1:]), "all", size=6).pixels)
    with pytest.raises(InputError, match="images with 2 channels cannot be made grey"):
        load(npy(images), "all", colour="grey")


def test_crop_is_central_and_rgb_repeats_grey():
    pixels = np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1)
    assert Prepare(crop=(2, 4)).batch(pixels)[0, ..., 0].tolist() == [[13, 14, 15, 16], [19, 20, 21, 22]]
    assert Prepare(colour="rgb").batch(pixels).tolist() == pixels.repeat(3, -1).tolist()
