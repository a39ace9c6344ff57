"""Drawings and photographs, brought to the form of the run's images."""

import io
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from capspoe.errors import InputError
from capspoe.explorer import ink

SHAPE = (28, 28, 1)


def url(picture, kind="PNG"):
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{b64encode(buffer.getvalue()).decode()}"


def drawing(ground=0, pen=255, box=(40, 20, 90, 250), size=(280, 280), mode="L"):
    picture = Image.new(mode, size, ground)
    ImageDraw.Draw(picture).ellipse(box, outline=pen, width=20)
    return picture


def read(picture, fit=True, shape=SHAPE, framing=ink.MNIST):
    return ink.from_data(url(picture), shape, framing, fit)


def measure(image):
    rows, columns = np.nonzero(image[..., 0] > 0.2)
    y, x = np.indices(image.shape[:2]) + 0.5
    mass = image[..., 0].sum()
    return (
        np.ptp(rows) + 1,
        np.ptp(columns) + 1,
        (y * image[..., 0]).sum() / mass,
        (x * image[..., 0]).sum() / mass,
    )


@given(st.integers(0, 150), st.integers(0, 150), st.integers(40, 120), st.integers(40, 120))
def test_wherever_it_is_drawn_it_ends_up_like_mnist(x, y, width, height):
    image = read(drawing(box=(x, y, x + width, y + height)))
    tall, wide, centre_y, centre_x = measure(image)
    assert image.shape == SHAPE
    assert 19 <= max(tall, wide) <= 20
    assert abs(centre_y - 14) <= 0.75
    assert abs(centre_x - 14) <= 0.75
    assert image.max() == 1


def test_dark_on_light_is_turned_round():
    np.testing.assert_allclose(read(drawing(255, 0)), read(drawing(0, 255)), atol=0.02)


def test_transparent_ground():
    clear = Image.new("RGBA", (280, 280), (0, 0, 0, 0))
    for pen in ("black", "white"):
        picture = clear.copy()
        ImageDraw.Draw(picture).ellipse((40, 20, 90, 250), outline=pen, width=20)
        np.testing.assert_allclose(read(picture), read(drawing()), atol=0.02)


def test_an_image_of_the_set_itself_stays_as_it_is():
    original = np.zeros((28, 28), np.uint8)
    original[4:24, 10:17] = 200
    original[20, 12] = 255
    np.testing.assert_allclose(read(Image.fromarray(original))[..., 0], original / 255, atol=1e-6)


def test_colour_images_are_cut_from_the_middle():
    picture = Image.new("RGB", (100, 60), "red")
    image = read(picture, shape=(32, 32, 3), framing=ink.Framing(None))
    assert image.shape == (32, 32, 3)
    assert image[..., 0].min() > 0.99
    assert image[..., 1:].max() < 0.01


def test_other_channels_are_all_the_grey_image():
    image = read(drawing(), shape=(28, 28, 2), framing=ink.Framing(None))
    grey = read(drawing(), shape=(28, 28, 3), framing=ink.Framing(None))
    np.testing.assert_allclose(image, grey[..., :2])


def test_sixteen_bits_are_read_as_eight():
    picture = drawing(40, 170)
    deep = Image.fromarray(np.asarray(picture).astype(np.uint16) * 257)
    np.testing.assert_array_equal(read(deep, fit=False), read(picture, fit=False))


def test_framing_is_measured():
    images = np.zeros((20, 28, 28, 1), np.uint8)
    images[:, 4:24, 8:20] = 255
    assert ink.Framing.of(images).box == pytest.approx(20 / 28)
    assert ink.Framing.of(255 - images).box is None
    assert ink.Framing.of(np.repeat(images, 3, -1)).box is None


@pytest.mark.parametrize(
    "content", ["", "x", "data:,", "data:image/png;base64,", "data:image/png;base64,AAAA", "é"]
)
def test_what_is_no_image_is_refused(content):
    with pytest.raises(InputError):
        ink.from_data(content, SHAPE, ink.MNIST, True)


def test_a_blank_image_is_refused():
    with pytest.raises(InputError, match="blank"):
        read(Image.new("L", (50, 50), 130))


def test_too_many_pixels_are_refused_before_they_are_decoded():
    with pytest.raises(InputError, match="at most"):
        read(Image.new("1", (5000, 5000)))


def test_cut_off_file():
    whole = url(drawing(), "JPEG")
    with pytest.raises(InputError, match="read"):
        ink.from_data(whole[: len("data:image/jpeg;base64,") + 400], SHAPE, ink.MNIST, True)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("shape", [SHAPE, (32, 32, 3)])
def test_every_mode(mode, shape):
    picture = drawing().convert("RGBA" if mode in ("LA", "RGBA") else "RGB").convert(mode)
    image = read(picture, shape=shape, framing=ink.MNIST if shape == SHAPE else ink.Framing(None))
    assert image.shape == shape
    assert 0 <= image.min() <= image.max() <= 1
