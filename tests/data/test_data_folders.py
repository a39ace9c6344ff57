"""Folders of images: every mode and size that Pillow reads, damaged files among them."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from capspoe.data import Prepare, load, open_dataset
from capspoe.data.folders import list_images
from capspoe.data.formats import BadImage, decode, probe
from capspoe.errors import CapspoeWarning, DataError

RNG = np.random.default_rng(0)


def save(path, mode="L", size=(28, 28), value=None, **options):
    """Save an image, by default with random pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(RNG.integers(0, 256, (size[1], size[0], 3), np.uint8)).convert(mode)
    (picture if value is None else Image.new(mode, size, value)).save(path, **options)
    return path


def one(path, **options):
    """The only image of a folder."""
    return load(path.parent, "all", **options).pixels[0]


def test_mixed_sizes_and_modes_become_one_array(tmp_path):
    save(tmp_path / "a.png", "L", (31, 45))
    save(tmp_path / "b.jpg", "RGB", (200, 120))
    save(tmp_path / "deep" / "er" / "c.BMP", "RGB", (5, 7))
    save(tmp_path / "d.gif", "P", (64, 64))
    save(tmp_path / "e.tiff", "CMYK", (30, 30))
    save(tmp_path / "f.webp", "RGBA", (30, 60))
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden.png").write_text("not an image either")
    images = load(tmp_path, "all")
    assert images.pixels.shape == (6, 28, 28, 3)
    assert images.labels is None
    assert load(tmp_path, "all", size=(20, 10), colour="grey").pixels.shape == (6, 20, 10, 1)


def test_small_images_of_one_size_keep_it_and_large_ones_do_not(tmp_path):
    for k in range(3):
        save(tmp_path / "small" / f"{k}.png", "L", (40, 32))
        save(tmp_path / "large" / f"{k}.png", "L", (100, 100))
    assert load(tmp_path / "small", "all").pixels.shape == (3, 32, 40, 1)
    assert load(tmp_path / "small", "all", crop=28).pixels.shape == (3, 28, 28, 1)
    assert load(tmp_path / "large", "all").pixels.shape == (3, 28, 28, 1)


def test_resizing_keeps_the_aspect_and_is_antialiased(tmp_path):
    """Of a wide image the white centre stays; a fine checkerboard becomes grey."""
    picture = np.zeros((100, 300), np.uint8)
    picture[:, 100:200] = 255
    Image.fromarray(picture).save(tmp_path / "a.png")
    small = one(tmp_path / "a.png", size=10)
    assert (small >= 230).all()
    assert (small[:, 1:-1] == 255).all()
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).save(tmp_path / "a.png")
    assert (abs(one(tmp_path / "a.png", size=8).astype(int) - 127) < 10).all()


def test_a_much_larger_jpeg_is_decoded_right(tmp_path):
    picture = np.zeros((1600, 1600, 3), np.uint8)
    picture[:, 800:] = (255, 0, 0)
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=95)
    small = one(tmp_path / "a.jpg", size=20).astype(int)
    assert small[:, 2].max() < 8
    assert (abs(small[:, 17] - (254, 0, 0)) < 8).all()


@pytest.mark.parametrize(("alpha", "expected"), [(0, 255), (255, 100), (128, 177)])
def test_transparency_is_blended_with_white(tmp_path, alpha, expected):
    save(tmp_path / "rgba" / "a.png", "RGBA", (9, 9), (100, 100, 100, alpha))
    save(tmp_path / "la" / "a.png", "LA", (9, 9), (100, alpha))
    for folder, channels in (("rgba", 3), ("la", 1)):
        pixels = one(tmp_path / folder / "a.png")
        assert pixels.shape == (9, 9, channels)
        assert (abs(pixels.astype(int) - expected) <= 1).all()


def test_palettes(tmp_path):
    """A transparent colour is white; a palette of greys is grey."""
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 10, 200, 30])
    picture.paste(0, (0, 0, 4, 8))
    picture.save(tmp_path / "a.png", transparency=0)
    pixels = one(tmp_path / "a.png")
    assert (pixels[:, :4] == 255).all()
    assert (pixels[:, 4:] == (10, 200, 30)).all()
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 77, 77, 77])
    picture.save(tmp_path / "a.png")
    assert one(tmp_path / "a.png").tolist() == [[[77]] * 8] * 8


def test_deep_images_become_eight_bits(tmp_path):
    values = np.array([[0, 65535, 32896, 257]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    assert one(tmp_path / "a.png")[..., 0].tolist() == [[0, 255, 128, 1]]
    (tmp_path / "f").mkdir()
    Image.fromarray(np.array([[0, 0.5, 1]], np.float32)).save(tmp_path / "f" / "a.tiff")
    assert one(tmp_path / "f" / "a.tiff")[..., 0].tolist() == [[0, 128, 255]]
    Image.fromarray(np.array([[0, 0.5, 1e9]], np.float32)).save(tmp_path / "f" / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff \(floats: values from 0 to 1e\+09"):
        one(tmp_path / "f" / "a.tiff")
    Image.fromarray(np.array([[0, 70000]], np.int32)).save(tmp_path / "f" / "a.tiff")
    with pytest.raises(DataError, match="values from 0 to 70000, more than 16 bits"):
        one(tmp_path / "f" / "a.tiff")


def test_black_and_white_and_cmyk(tmp_path):
    save(tmp_path / "1" / "a.png", "1", (8, 8), 1)
    save(tmp_path / "cmyk" / "a.jpg", "CMYK", (8, 8), (0, 255, 255, 0), quality=100)
    assert (one(tmp_path / "1" / "a.png") == 255).all()
    assert (abs(one(tmp_path / "cmyk" / "a.jpg").astype(int) - (255, 0, 0)) < 12).all()


@pytest.mark.parametrize("extension", ["jpg", "tiff", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, extension, orientation):
    """The light corner is where a viewer shows it."""
    corners = {1: (0, 0), 2: (0, 1), 3: (1, 1), 4: (1, 0), 5: (0, 0), 6: (0, 1), 7: (1, 1), 8: (1, 0)}
    stored = np.zeros((16, 32), np.uint8)
    stored[:8, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{extension}"
    Image.fromarray(stored).convert("RGB").save(path, exif=exif)
    size = (16, 32) if orientation < 5 else (32, 16)
    assert probe(path) == (size, True)
    pixels = decode(path, Prepare(size, None, "grey"))[..., 0]
    halves = pixels.reshape(2, size[0] // 2, 2, size[1] // 2).mean((1, 3))
    assert np.unravel_index(halves.argmax(), (2, 2)) == corners[orientation]


def test_broken_exif_does_not_make_an_image_bad(tmp_path):
    path = save(tmp_path / "a.jpg", "L", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff junk")
    assert one(path).shape == (28, 28, 1)


def test_subfolders_are_classes(tmp_path):
    """Paths sort `a-b/` before `a/`, names sort `a` before `a-b`."""
    for name in ("a", "a-b", "c"):
        save(tmp_path / name / "more" / "0.png")
    dataset = open_dataset(tmp_path, "all")
    assert dataset.names(range(3)) == ["a-b/more/0.png", "a/more/0.png", "c/more/0.png"]
    assert dataset.classes == ("a", "a-b", "c")
    assert dataset.labels.tolist() == [1, 0, 2]
    save(tmp_path / "loose.png")
    assert open_dataset(tmp_path, "all").labels is None


def test_own_train_and_test_are_kept_with_common_labels(tmp_path):
    save(tmp_path / "train" / "cat" / "0.png", "L", (20, 20))
    save(tmp_path / "train" / "dog" / "0.png", "L", (20, 20))
    save(tmp_path / "test" / "dog" / "1.png", "RGB", (20, 20))
    save(tmp_path / "other" / "cow" / "1.png")
    train, test = (open_dataset(tmp_path, split) for split in ("train", "test"))
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1], [1])
    assert train.classes == test.classes == ("cat", "dog")
    assert train.shape == test.shape == (20, 20, 3)
    assert open_dataset(tmp_path, "all").labels.tolist() == [1, 0, 1]


def test_split_is_by_name_and_stable(tmp_path):
    for k in range(200):
        save(tmp_path / f"{k}.png", "L", (2, 2), k)
    train, test = (open_dataset(tmp_path, split) for split in ("train", "test"))
    before = test.names(range(len(test)))
    assert len({*before, *train.names(range(len(train)))}) == len(train) + len(test) == 200
    assert 10 <= len(test) <= 32
    for k in range(200, 300):
        save(tmp_path / f"{k}.png", "L", (2, 2), 0)
    after = open_dataset(tmp_path, "test")
    assert set(before) <= set(after.names(range(len(after))))
    assert before[0] == "103.png"  # the same on every machine and version


def test_two_images_fill_both_splits_and_one_cannot(tmp_path):
    save(tmp_path / "a.png")
    assert len(open_dataset(tmp_path, "train")) == 1
    with pytest.raises(DataError, match="a single image cannot be split; use the split 'all'"):
        open_dataset(tmp_path, "test")
    save(tmp_path / "b.png")
    assert len(open_dataset(tmp_path, "train")) == len(open_dataset(tmp_path, "test")) == 1


def bomb(path, side):
    """Write a PNG of a few hundred bytes that claims billions of pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b""))


@pytest.fixture
def damaged(tmp_path):
    """A folder with two good and seven bad images, among them bombs just and far beyond Pillow's limit."""
    whole = save(tmp_path / "good" / "whole.png", "L", (28, 28)).read_bytes()
    photo = save(tmp_path / "good" / "photo.jpg", "RGB", (28, 28)).read_bytes()
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "cut.png").write_bytes(whole[: len(whole) // 2])
    (bad / "cut.jpg").write_bytes(photo[: len(photo) // 2])
    (bad / "flipped.png").write_bytes(whole[:60] + b"\0\0\0\0\0\0" + whole[66:])
    (bad / "empty.png").write_bytes(b"")
    (bad / "text.jpg").write_text("this is not an image")
    bomb(bad / "bomb.png", 60_000)
    bomb(bad / "bomb-small.png", 11_000)
    return tmp_path


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")  # as outside of tests
def test_bad_images_are_counted_and_named(damaged):
    with pytest.raises(DataError) as caught:
        load(damaged, "all", size=28)
    message = str(caught.value)
    limit = "(more than 89478485 pixels)"
    assert message.startswith(f"7 of 9 images cannot be read: bad/bomb-small.png {limit}, bad/bomb.png {limit}")
    assert "and 2 more; repair or remove them" in message
    assert "\n" not in message


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_bad_images_are_skipped_on_request(damaged):
    with pytest.warns(UserWarning, match="skipped: 7 of 9 images cannot be read"):
        images = load(damaged, "all", skip_bad=True)
    assert images.labels.tolist() == [1, 1]
    with pytest.warns(UserWarning, match="skipped: 7 of 9"):
        dataset = open_dataset(damaged, "all", skip_bad=True)
    assert np.array_equal(dataset.batch([0, 1]), images.pixels)
    assert dataset.names([1, 0]) == ["good/whole.png", "good/photo.jpg"]


def test_only_bad_images_are_an_error_even_when_skipped(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="1 of 1 images cannot be read"):
        load(tmp_path, "all", skip_bad=True)


def test_only_the_batch_with_a_bad_image_fails(tmp_path):
    for name in "abc":
        save(tmp_path / f"{name}.png")
    dataset = open_dataset(tmp_path, "all")
    (tmp_path / "b.png").write_bytes(b"")
    (tmp_path / "c.png").unlink()
    assert dataset.batch([0]).shape == (1, 28, 28, 1)
    with pytest.raises(DataError, match=r"2 of 3 .*: b\.png \(not an .*, c\.png \(No such file or directory\)"):
        dataset.batch([0, 1, 2])


def test_postscript_is_never_run(tmp_path):
    """Pillow would give it to another program, whatever the name of the file."""
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n"
    (tmp_path / "a.png").write_bytes(script)
    with pytest.raises(BadImage, match="not an image"):
        decode(tmp_path / "a.png", Prepare((9, 9), None, "grey"))


def test_an_empty_folder_is_an_error(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(DataError, match="no images in this folder"):
        load(tmp_path)


def test_pictures_that_cannot_be_read_are_named(tmp_path):
    names = [f"{kind}.{kind}" for kind in ("svg", "nef", "pdf", "xcf", "cr2", "eps")]
    for name in (*names, "notes.txt"):
        (tmp_path / name).write_text("x")
    with pytest.raises(DataError, match=r"no images in this folder \(6 of kinds that are not supported: cr2\.cr2"):
        load(tmp_path, "all")
    save(tmp_path / "good.png", value=0)
    with pytest.warns(CapspoeWarning, match=r"skipped 6 of kinds that are not supported: cr2\.cr2, ") as caught:
        assert len(load(tmp_path, "all").pixels) == 1
    assert "notes.txt" not in str(caught[0].message)
    assert str(caught[0].message).endswith("and 1 more")


@pytest.mark.parametrize("kind", ["png", "jpeg", "gif", "tiff", "webp"])
def test_a_file_without_extension_is_known_by_its_first_bytes(tmp_path, kind):
    Image.new("L", (8, 8), 200).save(tmp_path / "IMG_0001", kind)
    (tmp_path / "notes").write_text("RIFF, but no picture")
    (tmp_path / "empty").touch()
    assert list_images(tmp_path) == ["IMG_0001"]
    assert abs(int(load(tmp_path, "all").pixels.mean()) - 200) <= 2


@pytest.mark.skipif(os.name != "posix", reason="needs links and unusual names")
def test_listing_is_sorted_and_follows_links_but_no_loops(tmp_path):
    names = ["a.png", "a/b.png", "a/b/c.png", "a0.png", "B.png", "a-b/z.png", "ü.png", "a b.png"]
    for name in names:
        save(tmp_path / name, value=0)
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "linked.png").symlink_to(tmp_path / "a.png")
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere")
    odd = os.fsdecode(b"\xff\n.png")
    save(tmp_path / odd, value=0)
    expected = sorted([*names, "linked.png", "broken.png", odd], key=os.fsencode)
    assert list_images(tmp_path) == expected
    with pytest.raises(DataError, match=r"1 of 11 images cannot be read: broken\.png"):
        load(tmp_path, "all")


def test_many_files_are_listed_cheaply_and_decoded_on_demand(tmp_path):
    """Of 20,000 files all but one are not even images."""
    good = save(tmp_path / "good.png", "L", (8, 8), 9).read_bytes()
    (tmp_path / "good.png").unlink()
    for k in range(20):
        (tmp_path / f"class{k}").mkdir()
        for n in range(1000):
            (tmp_path / f"class{k}" / f"{n:05}.png").touch()
    (tmp_path / "class7" / "00500.png").write_bytes(good)
    dataset = open_dataset(tmp_path, "all", size=8, colour="grey")
    row = 17 * 1000 + 500  # class17 sorts before class2
    assert (len(dataset), dataset.classes[17], dataset.labels[row]) == (20_000, "class7", 17)
    assert (dataset.batch([row]) == 9).all()
