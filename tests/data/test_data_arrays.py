"""Images in .npy and .npz files, good and bad, and the rules for their values."""

import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from capspoe.data import load, open_source
from capspoe.data.prepare import Prepare
from capspoe.errors import DataError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 9, 7), np.uint8)


def save(path, **arrays):
    (np.savez_compressed if len(arrays) % 2 else np.savez)(path, **arrays)
    return path


@pytest.fixture
def npy(tmp_path):
    """npy(array) saves it."""

    def write(array, **options):
        np.save(tmp_path / "images.npy", array, **options)
        return tmp_path / "images.npy"

    return write


@pytest.fixture
def npz(tmp_path):
    return lambda **arrays: save(tmp_path / "images.npz", **arrays)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (PIXELS, PIXELS[..., None]),
        (PIXELS[..., None], PIXELS[..., None]),
        (PIXELS[:, None], PIXELS[..., None]),
        (np.asfortranarray(PIXELS), PIXELS[..., None]),
        (np.stack([PIXELS] * 3, -1), np.stack([PIXELS] * 3, -1)),
        (np.stack([PIXELS] * 3, 1), np.stack([PIXELS] * 3, -1)),
        (PIXELS / 255, PIXELS[..., None]),
        ((PIXELS / 255).astype(np.float32), PIXELS[..., None]),
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


def test_alpha_in_arrays_is_laid_over_white_as_in_files(npy):
    colours = RNG.integers(0, 256, (3, 5, 5, 4), np.uint8)
    page = Image.new("RGBA", (5, 5), "white")
    expected = [np.asarray(Image.alpha_composite(page, Image.fromarray(c)).convert("RGB")) for c in colours]
    assert abs(load(npy(colours), "all").pixels.astype(int) - expected).max() <= 1


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (PIXELS - 1.0, r"values from -1 to 254; pixels lie in \[0, 1\] or \[0, 255\]"),
        (PIXELS * 2.0, r"values from 0 to 510; pixels lie in \[0, 1\] or \[0, 255\]"),
        (np.where(PIXELS == 3, np.nan, PIXELS), "not finite"),
        (np.where(PIXELS == 3, np.inf, PIXELS), "not finite"),
        (PIXELS.astype(np.int16) - 1, "values from -1 to 254; pixels lie in 0 to 255"),
        (PIXELS.astype(np.uint16) * 257, "pixels lie in 0 to 255"),
        ((PIXELS > 99).astype(np.uint8), "only 0 and 1; save black and white images as bool"),
        ((PIXELS > 99).astype(np.int64), "only 0 and 1"),
        (PIXELS * 1j, "values of type complex128 are not pixels"),
        (PIXELS.astype("U3"), "values of type <U3 are not pixels"),
        (PIXELS[0], r"shape \(9, 7\) is not \(n, H, W\)"),
        (PIXELS[..., None, None], "is not"),
        (np.stack([PIXELS] * 8, -1), "fewer channels than pixels"),
        (PIXELS[:0], "holds no images"),
        (np.float64(3), "holds no images"),
        (np.array([{"a": 1}], object), "holds Python objects, which could run code"),
        (np.array([PIXELS[0], PIXELS[0, 1:]], object), "holds Python objects"),
    ],
)
def test_arrays_that_are_no_images_are_refused(npy, npz, array, message):
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
    array = np.array([Trap()], object)
    for path in (npy(array), npz(images=array), tmp_path / "pickle.npy", tmp_path / "pickle.npz"):
        with pytest.raises(DataError, match=r"Python objects|pickles are not read"):
            load(path, "all")
    with pytest.raises(DataError, match="Python objects"):
        load(npz(images=PIXELS, labels=np.array([Trap()] * 30, object)), "all")
    assert "the trap ran" not in capsys.readouterr().out


@pytest.mark.parametrize("cut", [0, 5, 40, 200, -1])
def test_truncated_files_are_clear_errors(npy, npz, cut):
    for path in (npy(PIXELS), npz(images=PIXELS)):
        path.write_bytes(path.read_bytes()[:cut])
        with pytest.raises(DataError, match=r"images\.np"):
            load(path, "all")


def test_a_header_that_promises_more_than_there_is_allocates_nothing(npy, npz, tmp_path):
    path = npy(PIXELS)
    data = path.read_bytes().replace(b"(30, 9, 7), }" + b" " * 12, b"(30, 9, 7000000000000), }")
    assert len(data) == path.stat().st_size
    path.write_bytes(data)
    with pytest.raises(DataError, match="promises 1890000000000000 bytes but 1890 follow"):
        load(path, "all")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as zipped:
        zipped.writestr("images.npy", data)
    with pytest.raises(DataError, match="promises 1890000000000000 bytes but 1890 follow"):
        load(tmp_path / "x.npz", "all")


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_npy_headers_with_changed_bytes_give_an_array_or_the_clear_error(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "changed.npy"
    np.save(path, PIXELS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.integers(0, 127))
        content[where] = data.draw(st.integers(0, 255) | st.sampled_from(b"0123456789()[]{},'uif<>"))
    path.write_bytes(content)
    try:
        images = load(path, "all")
    except DataError:
        return
    assert images.pixels.dtype == np.uint8
    assert images.pixels.size == PIXELS.size // images.pixels.shape[-1] * images.pixels.shape[-1]


LABELS = np.arange(30) % 4


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [
        (LABELS, LABELS, None),
        (LABELS[:, None], LABELS, None),
        (LABELS.astype(np.float32), LABELS, None),
        (np.array(["d", "b", "c", "a"])[LABELS], np.array([3, 1, 2, 0])[LABELS], ("a", "b", "c", "d")),
        (np.array([b"y", b"x"])[LABELS % 2], 1 - LABELS % 2, ("x", "y")),
    ],
)
def test_labels_become_numbers(npz, labels, expected, classes):
    source = open_source(npz(images=PIXELS, labels=labels), "all")
    assert source.labels.dtype == np.int64
    assert np.array_equal(source.labels, expected)
    assert source.classes == classes


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (LABELS[:-1], r"labels of shape \(29,\) for 30 images"),
        (np.eye(30), r"labels of shape \(30, 30\) for 30 images"),
        (LABELS + 0.5, "not whole numbers"),
        (LABELS - 1, "labels from -1 to 2"),
        (LABELS * np.nan, "not whole numbers"),
        (LABELS * 1j, "labels of type complex128"),
    ],
)
def test_labels_that_do_not_fit_are_refused(npz, labels, message):
    with pytest.raises(DataError, match=message):
        load(npz(images=PIXELS, labels=labels), "all")


@pytest.mark.parametrize(
    ("images", "labels"),
    [("images", "labels"), ("x", "y"), ("X", "Y"), ("arr_0", "arr_1"), ("data", "target")],
)
def test_usual_names_are_found(npz, images, labels):
    found = load(npz(**{images: PIXELS, labels: LABELS}), "all")
    assert np.array_equal(found.pixels[..., 0], PIXELS)
    assert np.array_equal(found.labels, LABELS)


@pytest.mark.parametrize(
    "names",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_own_train_and_test_are_kept(npz, names):
    path = npz(**dict(zip(names, (PIXELS[:20], LABELS[:20], PIXELS[20:], LABELS[20:]), strict=True)))
    for split, rows in (("train", slice(0, 20)), ("test", slice(20, 30)), ("all", slice(0, 30))):
        images = load(path, split)
        assert np.array_equal(images.pixels[..., 0], PIXELS[rows])
        assert np.array_equal(images.labels, LABELS[rows])


def test_names_of_classes_are_common_to_train_and_test(npz):
    path = npz(
        x_train=PIXELS[:2], y_train=np.array(["a", "c"]), x_test=PIXELS[2:4], y_test=np.array(["b", "c"])
    )
    assert load(path, "train").labels.tolist() == [0, 2]
    assert load(path, "test").labels.tolist() == [1, 2]


def test_train_and_test_of_different_shapes_are_refused(npz):
    with pytest.raises(DataError, match="train images are"):
        load(npz(x_train=PIXELS, x_test=PIXELS[:, :5]))


def test_one_scale_for_train_and_test(npz):
    """A dark test part on the scale 0 to 255 is not mistaken for one on the scale 0 to 1."""
    path = npz(x_train=PIXELS.astype(float), x_test=np.full((2, 9, 7), 1.0))
    assert load(path, "test").pixels.max() == 1


def test_a_lone_array_needs_no_name_and_two_do(npz):
    assert len(load(npz(whatever=PIXELS), "all").pixels) == 30
    with pytest.raises(DataError, match=r"which of its arrays \(one, two\) are the images"):
        load(npz(one=PIXELS, two=PIXELS), "all")


def test_split_of_an_array_is_fixed(npy):
    many = np.arange(1000, dtype=np.uint8).repeat(4).reshape(1000, 2, 2)
    train, test = (load(npy(many), split).pixels for split in ("train", "test"))
    assert len(train) + len(test) == 1000
    assert test[:5, 0, 0, 0].tolist() == [2, 32, 33, 41, 42]  # pinned: the same everywhere


def test_npy_is_mapped_and_pickled_as_a_path(npy):
    big = np.zeros((5000, 28, 28), np.uint8)
    big[:, 0, 0] = np.arange(5000) % 251
    source = open_source(npy(big), "all")
    stored = pickle.dumps(source)
    assert len(stored) < 100_000
    assert pickle.loads(stored).batch([4999, 3])[:, 0, 0, 0].tolist() == [4999 % 251, 3]


def test_size_crop_and_colour_of_arrays_agree_with_those_of_files(npy, tmp_path):
    colours = RNG.integers(0, 256, (4, 20, 30, 3), np.uint8)
    (tmp_path / "files").mkdir()
    for k, image in enumerate(colours):
        Image.fromarray(image).save(tmp_path / "files" / f"{k}.png")
    for options in (
        {},
        {"size": 10},
        {"size": (12, 9), "crop": 8},
        {"colour": "grey"},
        {"colour": "rgb", "crop": 5},
    ):
        arrays = load(npy(colours), "all", **options).pixels
        assert np.array_equal(arrays, load(tmp_path / "files", "all", **options).pixels)


def test_crop_is_central_and_rgb_repeats_grey():
    pixels = np.arange(36, dtype=np.uint8).reshape(1, 6, 6, 1)
    assert Prepare(crop=(2, 4)).batch(pixels)[0, ..., 0].tolist() == [[13, 14, 15, 16], [19, 20, 21, 22]]
    assert (Prepare(colour="rgb").batch(pixels) == pixels).all()
    assert Prepare(colour="rgb").batch(pixels).shape == (1, 6, 6, 3)
