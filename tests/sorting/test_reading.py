"""Files of all kinds become the same squares, and what cannot be read is told apart."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from capspoe.data.folders import list_folder
from capspoe.sorting.reading import (
    Seen,
    Unread,
    describe_unread,
    plain_background,
    read_file,
    read_files,
    square,
)


@pytest.fixture
def picture() -> Image.Image:
    """A smooth photograph-like picture with colours, 120x80."""
    y, x = np.mgrid[:80, :120] / 80
    pixels = np.stack([127 + 120 * np.sin(4 * x), 255 * y, 127 + 120 * np.cos(3 * x + 2 * y)], -1)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def read(folder, name):
    seen = read_file(folder, name, 28)
    assert isinstance(seen, Seen), seen
    return seen


def difference(a, b) -> float:
    return float(np.abs(a.small.astype(float) - b.small).mean())


@pytest.mark.parametrize("name", ["a.jpg", "a.webp", "a.tif", "a.bmp", "a.gif", "a.avif", "a.heic"])
def test_every_format_gives_the_same_picture(name, picture, tmp_path):
    if name == "a.heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    picture.save(tmp_path / "reference.png")
    picture.save(tmp_path / name)
    reference = read(tmp_path, "reference.png")
    seen = read(tmp_path, name)
    assert (seen.width, seen.height) == (120, 80)
    assert difference(seen, reference) < 8


def test_cmyk_and_sixteen_bits(picture, tmp_path):
    picture.save(tmp_path / "rgb.png")
    picture.convert("CMYK").save(tmp_path / "cmyk.jpg", quality=95)
    assert difference(read(tmp_path, "cmyk.jpg"), read(tmp_path, "rgb.png")) < 8
    grey = picture.convert("L")
    grey.save(tmp_path / "grey.png")
    Image.fromarray(np.asarray(grey).astype(np.uint16) * 257).save(tmp_path / "deep.png")
    assert difference(read(tmp_path, "deep.png"), read(tmp_path, "grey.png")) < 1


def test_exif_rotation_and_animations(picture, tmp_path):
    picture.save(tmp_path / "upright.png")
    exif = picture.getexif()
    exif[0x0112] = 6  # turn it by 90 degrees to the right
    picture.rotate(90, expand=True).save(tmp_path / "turned.jpg", exif=exif, quality=95)
    turned = read(tmp_path, "turned.jpg")
    assert (turned.width, turned.height) == (120, 80)
    assert difference(turned, read(tmp_path, "upright.png")) < 8
    frames = [picture, Image.new("RGB", picture.size)]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:])
    assert difference(read(tmp_path, "moving.gif"), read(tmp_path, "upright.png")) < 8


def test_transparent_images_stay_visible(tmp_path):
    for colour, name in (("white", "white.png"), ("black", "black.png")):
        icon = Image.new("RGBA", (64, 64))
        ImageDraw.Draw(icon).ellipse((12, 12, 52, 52), fill=colour)
        icon.save(tmp_path / name)
        assert read(tmp_path, name).small.std() > 40


def test_squares_keep_drawings_whole_and_crop_photographs(picture):
    drawing = Image.new("RGB", (90, 30), "white")
    ImageDraw.Draw(drawing).line((10, 15, 80, 15), fill="black", width=4)
    assert plain_background(drawing) == (255, 255, 255)
    whole = np.asarray(square(drawing, 30)).mean(-1)
    assert whole[0].min() > 250  # padded above
    assert (whole[14:16] < 128).sum() > 20  # the line has kept its length
    assert plain_background(picture) is None
    assert np.allclose(np.asarray(square(picture, 80)), np.asarray(picture)[:, 20:100], atol=2)


def test_thumbnails_are_what_a_browser_shows_on_any_background(picture, tmp_path):
    picture.resize((1200, 800)).save(tmp_path / "large.tif")
    small = picture.resize((30, 20))
    small.save(tmp_path / "small.tif")
    large = read(tmp_path, "large.tif")
    assert (large.width, large.height) == (1200, 800)
    shown = Image.open(io.BytesIO(large.thumbnail))
    assert (shown.format, shown.size) == ("JPEG", (160, 107))
    shown = Image.open(io.BytesIO(read(tmp_path, "small.tif").thumbnail))
    assert (shown.format, shown.tobytes()) == ("PNG", small.tobytes())  # not blurred by JPEG
    icon = Image.new("RGBA", (64, 64))
    ImageDraw.Draw(icon).ellipse((12, 12, 52, 52), fill="black")
    icon.save(tmp_path / "icon.png")
    shown = Image.open(io.BytesIO(read(tmp_path, "icon.png").thumbnail))
    assert not shown.has_transparency_data
    assert (shown.getpixel((0, 0)), shown.getpixel((32, 32))) == ((255, 255, 255), (0, 0, 0))


def test_what_cannot_be_read(picture, tmp_path):
    picture.save(tmp_path / "good.jpg")
    content = (tmp_path / "good.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.png").write_bytes(b"")
    (tmp_path / "text.gif").write_text("hello")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    for name in ("drawing.SVG", "raw.nef", "film.mp4", "notes.txt"):
        (tmp_path / name).write_text("x")
    listing = list_folder(tmp_path)
    assert listing.images == ["cut.jpg", "empty.png", "gone.png", "good.jpg", "text.gif"]
    assert listing.unsupported == ["drawing.SVG", "raw.nef"]
    results = list(read_files(tmp_path, listing.images, 28))
    assert [isinstance(item, Unread) for item in results] == [True, True, True, False, True]
    line = describe_unread([item for item in results if isinstance(item, Unread)], listing.unsupported)
    assert "\n" not in line
    assert line.startswith("4 cannot be read: cut.jpg (")
    assert line.endswith("2 of kinds that are not supported: drawing.SVG, raw.nef")
