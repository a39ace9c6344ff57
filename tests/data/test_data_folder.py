"""Folders of images: every mode and size that Pillow reads, damaged ones among them, many of them."""

import os
import pickle
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from capspoe.data import load, open_source
from capspoe.data.decode import BadImage, decode, probe
from capspoe.data.listing import Listing, list_images
from capspoe.data.prepare import Prepare
from capspoe.errors import DataError, InputError

RNG = np.random.default_rng(0)


def save(path, mode="L", size=(28, 28), value=None, **options):
    """One image file, by default with random pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if value is None:
        channels = len(Image.new(mode, (1, 1)).getbands())
        picture = Image.fromarray(
            RNG.integers(0, 256, (size[1], size[0], channels), np.uint8).squeeze(-1 if channels == 1 else ()),
            mode if channels > 1 else None,
        )
        picture = picture if picture.mode == mode else picture.convert(mode)
    else:
        picture = Image.new(mode, size, value)
    picture.save(path, **options)
    return path


def one(path, **options):
    """The only image of the folder that a file is in."""
    return load(path.parent, "all", **options).pixels[0]


def test_mixed_sizes_and_modes_become_one_array(tmp_path):
    save(tmp_path / "a.png", "L", (31, 45))
    save(tmp_path / "b.jpg", "RGB", (200, 120))
    save(tmp_path / "deep" / "er" / "c.bmp", "RGB", (5, 7))
    save(tmp_path / "d.gif", "P", (64, 64))
    save(tmp_path / "e.tiff", "CMYK", (30, 30))
    save(tmp_path / "f.webp", "RGBA", (30, 60))
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / ".hidden.png").write_text("no image either")
    images = load(tmp_path, "all")
    assert images.pixels.shape == (6, 28, 28, 3)
    assert images.pixels.dtype == np.uint8
    assert images.labels is None
    assert load(tmp_path, "all", size=(20, 10), colour="grey").pixels.shape == (6, 20, 10, 1)


def test_small_images_of_one_size_keep_it(tmp_path):
    for k in range(3):
        save(tmp_path / f"{k}.png", "L", (40, 32))
    assert load(tmp_path, "all").pixels.shape == (3, 32, 40, 1)
    assert load(tmp_path, "all", crop=28).pixels.shape == (3, 28, 28, 1)


def test_large_images_of_one_size_become_the_papers(tmp_path):
    save(tmp_path / "a.png", "L", (100, 100))
    save(tmp_path / "b.png", "L", (100, 100))
    assert load(tmp_path, "all").pixels.shape == (2, 28, 28, 1)


def test_grey_png_is_exact(tmp_path):
    pixels = RNG.integers(0, 256, (28, 28), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(one(tmp_path / "a.png")[..., 0], pixels)


def test_resizing_keeps_the_aspect_and_cuts_the_sides(tmp_path):
    """A wide picture, black but for a white centre square: only the square is left, its rim a little grey."""
    picture = np.zeros((100, 300), np.uint8)
    picture[:, 100:200] = 255
    Image.fromarray(picture).save(tmp_path / "a.png")
    small = one(tmp_path / "a.png", size=10)
    assert (small >= 230).all()
    assert (small[:, 1:-1] == 255).all()


def test_resizing_is_antialiased(tmp_path):
    """A fine checkerboard becomes an even grey, not a sample of its squares."""
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).save(tmp_path / "a.png")
    small = one(tmp_path / "a.png", size=8).astype(int)
    assert (abs(small - 127) < 10).all()


def test_a_far_larger_jpeg_is_decoded_right(tmp_path):
    picture = np.zeros((1600, 1600, 3), np.uint8)
    picture[:, 800:] = (255, 0, 0)
    Image.fromarray(picture).save(tmp_path / "a.jpg", quality=95)
    small = one(tmp_path / "a.jpg", size=20)
    assert abs(small[:, 2].astype(int)).max() < 8
    assert (abs(small[:, 17].astype(int) - (254, 0, 0)) < 8).all()


@pytest.mark.parametrize(("alpha", "expected"), [(0, 255), (255, 100), (128, 177)])
def test_transparency_is_laid_over_white(tmp_path, alpha, expected):
    save(tmp_path / "rgba" / "a.png", "RGBA", (9, 9), (100, 100, 100, alpha))
    save(tmp_path / "la" / "a.png", "LA", (9, 9), (100, alpha))
    for folder, channels in (("rgba", 3), ("la", 1)):
        pixels = one(tmp_path / folder / "a.png")
        assert pixels.shape == (9, 9, channels)
        assert (abs(pixels.astype(int) - expected) <= 1).all()


def test_a_transparent_palette_colour_is_white(tmp_path):
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 10, 200, 30])
    picture.paste(0, (0, 0, 4, 8))
    picture.save(tmp_path / "a.png", transparency=0)
    pixels = one(tmp_path / "a.png")
    assert (pixels[:, :4] == 255).all()
    assert (pixels[:, 4:] == (10, 200, 30)).all()


def test_a_palette_of_greys_is_grey(tmp_path):
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 77, 77, 77])
    picture.save(tmp_path / "a.png")
    assert one(tmp_path / "a.png").shape == (8, 8, 1)
    assert (one(tmp_path / "a.png") == 77).all()


def test_sixteen_bits_become_eight(tmp_path):
    values = np.array([[0, 65535, 32896, 257]], np.uint16)
    Image.fromarray(values).save(tmp_path / "a.png")
    Image.fromarray(values).save(tmp_path / "b.tiff")
    for pixels in load(tmp_path, "all").pixels:
        assert pixels[..., 0].tolist() == [[0, 255, 128, 1]]


def test_float_images_follow_the_rule_for_floats(tmp_path):
    Image.fromarray(np.array([[0, 0.5, 1]], np.float32)).save(tmp_path / "a.tiff")
    assert one(tmp_path / "a.tiff")[..., 0].tolist() == [[0, 128, 255]]
    Image.fromarray(np.array([[0, 0.5, 1e9]], np.float32)).save(tmp_path / "a.tiff")
    with pytest.raises(DataError, match=r"a\.tiff \(floats: values from 0 to 1e\+09"):
        one(tmp_path / "a.tiff")


def test_black_and_white_and_cmyk(tmp_path):
    save(tmp_path / "1" / "a.png", "1", (8, 8), 1)
    save(tmp_path / "cmyk" / "a.jpg", "CMYK", (8, 8), (0, 255, 255, 0), quality=100)
    assert (one(tmp_path / "1" / "a.png") == 255).all()
    assert (abs(one(tmp_path / "cmyk" / "a.jpg").astype(int) - (255, 0, 0)) < 12).all()


@pytest.mark.parametrize("extension", ["jpg", "tiff", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, extension, orientation):
    """The light corner of the upright picture is where a viewer would show it."""
    corners = {1: (0, 0), 2: (0, 1), 3: (1, 1), 4: (1, 0), 5: (0, 0), 6: (0, 1), 7: (1, 1), 8: (1, 0)}
    stored = np.zeros((16, 32), np.uint8)
    stored[:8, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a.{extension}"
    Image.fromarray(stored).convert("RGB").save(path, exif=exif)
    size = (16, 32) if orientation < 5 else (32, 16)
    assert probe(path).size == size
    pixels = decode(path, Prepare(size, None, "grey"))[..., 0]
    halves = pixels.reshape(2, size[0] // 2, 2, size[1] // 2).mean((1, 3))
    assert np.unravel_index(halves.argmax(), (2, 2)) == corners[orientation]


def test_broken_exif_does_not_make_an_image_bad(tmp_path):
    path = save(tmp_path / "a.jpg", "L", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff junk")
    assert one(path).shape == (28, 28, 1)


def test_subfolders_are_classes(tmp_path):
    for name, count in (("dog", 3), ("cat", 2)):
        for k in range(count):
            save(tmp_path / name / "more" / f"{k}.png")
    source = open_source(tmp_path, "all")
    assert source.classes == ("cat", "dog")
    assert source.labels.tolist() == [0, 0, 1, 1, 1]
    assert source.labels.dtype == np.int64
    save(tmp_path / "loose.png")
    assert open_source(tmp_path, "all").labels is None


def test_labels_follow_the_sorted_names_even_where_paths_sort_otherwise(tmp_path):
    """`a-b/` comes before `a/` among paths, but `a` before `a-b` among names."""
    for name in ("a", "a-b"):
        save(tmp_path / name / "0.png")
    source = open_source(tmp_path, "all")
    assert [source.name(k) for k in range(2)] == ["a-b/0.png", "a/0.png"]
    assert source.classes == ("a", "a-b")
    assert source.labels.tolist() == [1, 0]


def test_own_train_and_test_are_kept_with_common_labels(tmp_path):
    save(tmp_path / "train" / "cat" / "0.png", "L", (20, 20))
    save(tmp_path / "train" / "dog" / "0.png", "L", (20, 20))
    save(tmp_path / "test" / "dog" / "1.png", "RGB", (20, 20))
    save(tmp_path / "other" / "cow" / "1.png")
    train, test = (open_source(tmp_path, split) for split in ("train", "test"))
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1], [1])
    assert train.classes == test.classes == ("cat", "dog")
    assert train.shape == test.shape == (20, 20, 3)
    assert len(open_source(tmp_path, "all")) == 3


def test_split_is_by_name_and_stable(tmp_path):
    for k in range(200):
        save(tmp_path / f"{k}.png", "L", (2, 2), k)
    train, test = (open_source(tmp_path, split) for split in ("train", "test"))
    names = {source.name(k) for source in (train, test) for k in range(len(source))}
    assert len(names) == len(train) + len(test) == 200
    assert 10 <= len(test) <= 32
    before = {test.name(k) for k in range(len(test))}
    for k in range(200, 300):
        save(tmp_path / f"{k}.png", "L", (2, 2), 0)
    after = open_source(tmp_path, "test")
    assert before <= {after.name(k) for k in range(len(after))}
    assert test.name(0) == "103.png"  # pinned: the same on every machine and version


def test_two_images_give_one_to_each_side_and_one_only_to_train(tmp_path):
    save(tmp_path / "a.png")
    assert len(open_source(tmp_path, "train")) == 1
    with pytest.raises(DataError, match="one image cannot be split; use the split 'all'"):
        open_source(tmp_path, "test")
    save(tmp_path / "b.png")
    assert len(open_source(tmp_path, "train")) == len(open_source(tmp_path, "test")) == 1


def bomb(path, side=60_000):
    """A PNG of a few hundred bytes whose head promises billions of pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(99)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [11_000, 60_000])
def test_decompression_bombs_are_refused_by_their_size(tmp_path, side):
    """Just beyond Pillow's limit, where it only warns, and far beyond."""
    bomb(tmp_path / "a.png", side)
    with pytest.raises(BadImage, match="more than 89478485 pixels"):
        decode(tmp_path / "a.png", Prepare((28, 28), None, "grey"))


def damaged(folder):
    """Seven bad images of different kinds; the good ones are called good."""
    whole = save(folder / "good" / "whole.png", "L", (28, 28)).read_bytes()
    photo = save(folder / "good" / "photo.jpg", "RGB", (28, 28)).read_bytes()
    bad = folder / "bad"
    bad.mkdir()
    (bad / "cut.png").write_bytes(whole[: len(whole) // 2])
    (bad / "cut.jpg").write_bytes(photo[: len(photo) // 2])
    (bad / "flipped.png").write_bytes(whole[:60] + b"\0\0\0\0\0\0" + whole[66:])
    (bad / "empty.png").write_bytes(b"")
    (bad / "text.jpg").write_text("this is no image")
    bomb(bad / "bomb.png")
    bomb(bad / "little-bomb.png", 11_000)
    return folder


def test_bad_images_are_counted_and_named(tmp_path):
    damaged(tmp_path)
    with pytest.raises(DataError) as caught:
        load(tmp_path, "all", size=28)
    message = str(caught.value)
    assert message.startswith("7 of 9 images cannot be read: bad/bomb.png (more than ")
    assert "bad/cut.png (" in message
    assert "and 2 more; mend or remove them, or skip them with --skip-bad" in message
    assert "\n" not in message


def test_bad_images_are_skipped_only_when_asked(tmp_path):
    damaged(tmp_path)
    with pytest.warns(UserWarning, match="skipped: 7 of 9 images cannot be read"):
        images = load(tmp_path, "all", skip_bad=True)
    assert images.pixels.shape == (2, 28, 28, 3)
    assert images.labels.tolist() == [1, 1]
    with pytest.warns(UserWarning, match="skipped: 7 of 9"):
        source = open_source(tmp_path, "all", skip_bad=True)
    assert (len(source), len(source.skipped)) == (2, 7)
    assert np.array_equal(source.batch([0, 1]), images.pixels)
    assert source.labels.tolist() == [1, 1]


def test_a_lazy_source_fails_only_on_the_batch_with_the_bad_image(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"")
    source = open_source(tmp_path, "all")
    assert source.batch([0]).shape == (1, 28, 28, 1)
    with pytest.raises(DataError, match=r"1 of 2 images cannot be read: b\.png"):
        source.batch([0, 1])


def test_a_choice_of_images_says_which_of_its_own_are_bad(folder):
    (folder / "04.png").write_bytes(b"")
    (folder / "12.png").write_bytes(b"")
    some = open_source(folder, "all").some(12)  # every other one
    images, failures = some.readable_images()
    assert [(f.position, f.name) for f in failures] == [(2, "04.png"), (6, "12.png")]
    assert images.pixels[:, 0, 0, 0].tolist() == [20 * k for k in range(12) if k not in (2, 6)]
    with pytest.warns(UserWarning, match="skipped: 2 of 23"):
        rest = open_source(folder, "all", skip_bad=True)
    assert rest.first(3).skipped == rest.skipped != ()


def test_only_bad_images_is_an_error_even_when_skipping(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    for call in (load, open_source):
        with pytest.raises(DataError, match="1 of 1 images cannot be read"):
            call(tmp_path, "all", skip_bad=True)


def test_a_file_that_vanished_is_named(tmp_path):
    save(tmp_path / "a.png")
    source = open_source(tmp_path, "all")
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match=r"a\.png \(No such file or directory\)"):
        source.batch([0])


def test_postscript_is_never_run(tmp_path):
    """Pillow would hand it to another program: by its content it is refused, whatever its name."""
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nquit\n"
    )
    with pytest.raises(BadImage, match="not an image"):
        decode(tmp_path / "a.png", Prepare((9, 9), None, "grey"))


def test_an_empty_folder_is_a_clear_error(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(DataError, match="no images in this folder"):
        load(tmp_path)


def test_order_is_that_of_the_relative_paths(tmp_path):
    names = ["a.png", "a/b.png", "a/b/c.png", "a0.png", "B.png", "a-b/z.png", "ü.png", "a b.png"]
    for name in names:
        save(tmp_path / name, value=0)
    listed = [os.fsdecode(path) for path in list_images(tmp_path)]
    assert listed == sorted(names, key=os.fsencode)


@pytest.mark.skipif(os.name != "posix", reason="needs links and odd names")
def test_links_loops_and_odd_names(tmp_path):
    save(tmp_path / "real" / "a.png", value=0)
    (tmp_path / "real" / "loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "linked.png").symlink_to(tmp_path / "real" / "a.png")
    (tmp_path / "broken.png").symlink_to(tmp_path / "nowhere")
    with open(os.path.join(os.fsencode(tmp_path), b"\xff\n.png"), "wb") as file:
        file.write((tmp_path / "real" / "a.png").read_bytes())
    assert list(list_images(tmp_path)) == [b"broken.png", b"linked.png", b"real/a.png", b"\xff\n.png"]
    with pytest.raises(DataError, match=r"1 of 4 images cannot be read: broken\.png"):
        load(tmp_path, "all")


def test_many_files_are_listed_cheaply_and_decoded_only_when_asked(tmp_path):
    """20,000 entries, all but a few of them not even images: only what is asked for is opened."""
    good = save(tmp_path / "class0" / "00000.png", "L", (8, 8), 9).read_bytes()
    for k in range(20):
        folder = tmp_path / f"class{k}"
        folder.mkdir(exist_ok=True)
        for n in range(1000):
            os.close(os.open(folder / f"{n:05}.png", os.O_CREAT | os.O_WRONLY))
    (tmp_path / "class7" / "00500.png").write_bytes(good)
    source = open_source(tmp_path, "all", size=8, colour="grey")
    assert len(source) == 20_000
    assert source.classes[17] == "class7"
    row = 17 * 1000 + 500
    assert (source.batch([row]) == 9).all()
    assert source.labels[row] == 17
    assert len(pickle.dumps(source)) < 20_000 * 48


def test_a_listing_takes_little_more_than_its_text():
    listing = Listing(f"class/{k:08}.png".encode() for k in range(100_000))
    assert len(listing) == 100_000
    assert listing[99_999] == b"class/00099999.png"
    assert len(pickle.dumps(listing)) < 100_000 * (18 + 8) + 1000
    with pytest.raises(IndexError):
        listing[100_000]


@pytest.fixture
def folder(tmp_path):
    for k in range(23):
        save(tmp_path / f"{k:02}.png", "L", (6, 6), 10 * k)
    return tmp_path


def test_batches_come_in_order_with_and_without_workers(folder):
    source = open_source(folder, "all")
    order = np.random.default_rng(3).permutation(23)
    for workers in (0, 2):
        batches = list(source.batches(5, order, workers=workers))
        assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
        assert (np.concatenate(batches)[:, 0, 0, 0] == 10 * order).all()


def test_workers_report_bad_images_too(folder):
    (folder / "07.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"1 of 5 images cannot be read: 07\.png"):
        list(open_source(folder, "all").batches(5, workers=1))


def test_prefetch_is_bounded(folder):
    """An endless order is never drained: only a few batches are prepared ahead."""
    from capspoe.data.workers import AHEAD, map_in_order

    drawn = []
    endless = (drawn.append(k) or k for k in iter(lambda: len(drawn), -1))
    results = map_in_order(abs, endless, 1)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(drawn) <= 3 + AHEAD
    results.close()


def test_a_worker_that_dies_is_a_clear_error():
    from capspoe.data.workers import map_in_order

    with pytest.raises(DataError, match="a worker process ended unexpectedly"):
        list(map_in_order(os._exit, [3], 1))


def test_source_is_the_same_after_pickling_and_in_memory(folder):
    source = open_source(folder, "all")
    again = pickle.loads(pickle.dumps(source))
    memory = source.in_memory()
    order = [22, 0, 5, 5]
    assert np.array_equal(again.batch(order), source.batch(order))
    assert np.array_equal(memory.batch(order), source.batch(order))
    assert memory.shape == source.shape == (6, 6, 1)
    assert source.nbytes == 23 * 36
    assert source.batch([]).shape == (0, 6, 6, 1)
    assert memory.batch([]).shape == (0, 6, 6, 1)


@pytest.mark.parametrize("indices", [[-1], [23], [0.5], [[1]], ["a"]])
def test_wrong_indices_are_refused(folder, indices):
    with pytest.raises(InputError, match="indices"):
        open_source(folder, "all").batch(indices)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": (28, 28, 3)}, "one number, or a height and a width"),
        ({"size": 2.5}, "size is 2.5"),
        ({"size": True}, "size is True"),
        ({"size": 10**6}, "from 1 to 4096"),
        ({"crop": 7}, "crop 7x7 is larger than the images"),
        ({"colour": "blue"}, "grey, rgb or None"),
        ({"split": "valid"}, "train, test or all"),
    ],
)
def test_wrong_options_are_refused(folder, options, message):
    with pytest.raises(InputError, match=message):
        load(folder, **options)


@pytest.mark.parametrize("call", [lambda s: s.batches(0), lambda s: s.batches(1, workers=-1)])
def test_wrong_batch_sizes_and_workers_are_refused(folder, call):
    with pytest.raises(InputError, match=r"it is (at least 1|0, for none)"):
        list(call(open_source(folder)))


@pytest.mark.parametrize("name", ["minst", "", "no/such/folder", "~nobody-of-that-name/x", "a\0b"])
def test_names_that_are_nothing_are_refused(name):
    with pytest.raises(InputError, match=r"is no data set .* and no file or folder here"):
        load(name)


def test_a_name_that_is_too_long_is_refused():
    with pytest.raises(DataError, match=r"xxx: cannot be read \(.*long\)"):
        load("x" * 5000)


def test_a_single_image_file_is_refused(tmp_path):
    path = save(tmp_path / "a.png")
    with pytest.raises(InputError, match=r"give a folder of images, an \.npy or an \.npz"):
        load(path)
