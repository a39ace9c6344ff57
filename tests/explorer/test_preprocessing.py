"""Drawings and photographs, made to look like the run's images."""

import io
from base64 import b64encode

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageOps

from capspoe.data.drawings import MNIST_SIZE, object_size
from capspoe.errors import InputError
from capspoe.explorer.preprocessing import from_data_url
from capspoe.infer.polarity import Polarity

GREY, COLOUR = (28, 28, 1), (32, 32, 3)


def url(picture, kind="PNG"):
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{b64encode(buffer.getvalue()).decode()}"


def drawing(ground=0, pen=255, box=(40, 20, 90, 250), mode="L"):
    picture = Image.new(mode, (280, 280), ground)
    ImageDraw.Draw(picture).ellipse(box, outline=pen, width=20)
    return picture


def read(picture, fit=True, shape=GREY, size=MNIST_SIZE, dark=False):
    return from_data_url(url(picture), shape, size, fit, Polarity(dark))


@given(st.integers(0, 150), st.integers(0, 150), st.integers(40, 120), st.integers(40, 120))
def test_a_drawing_ends_up_like_mnist(x, y, width, height):
    image = read(drawing(box=(x, y, x + width, y + height)))
    assert image.shape == GREY
    rows, columns = np.nonzero(image[..., 0] > 0.2)
    assert 19 <= max(np.ptp(rows), np.ptp(columns)) + 1 <= 20
    centre = (np.indices((28, 28)) + 0.5).reshape(2, -1) @ image.ravel() / image.sum()
    np.testing.assert_allclose(centre, 14, atol=0.75)
    assert image.max() == 1


def test_dark_on_light_is_inverted():
    np.testing.assert_allclose(read(drawing(255, 0)), read(drawing(0, 255)), atol=0.02)


@pytest.mark.parametrize("pen", ["black", "white"])
def test_transparent_background(pen):
    np.testing.assert_allclose(read(drawing((0, 0, 0, 0), pen, mode="RGBA")), read(drawing()), atol=0.02)


def test_an_image_of_the_data_set_stays_as_it_is():
    original = np.zeros((28, 28), np.uint8)
    original[4:24, 10:17] = 200
    original[20, 12] = 255
    np.testing.assert_allclose(read(Image.fromarray(original))[..., 0], original / 255, atol=1e-6)


def test_colour_images_are_cropped_and_resized():
    image = read(Image.new("RGB", (100, 60), "red"), shape=COLOUR, size=None)
    np.testing.assert_allclose(image, np.broadcast_to([1, 0, 0], COLOUR), atol=0.01)
    two = read(drawing(), shape=(28, 28, 2), size=None)
    np.testing.assert_allclose(two, read(drawing(), shape=(28, 28, 3), size=None)[..., :2])


def test_sixteen_bits_are_read_as_eight():
    picture = drawing(40, 170)
    deep = Image.fromarray(np.asarray(picture).astype(np.uint16) * 257)
    np.testing.assert_array_equal(read(deep, fit=False), read(picture, fit=False))


def test_the_size_of_objects_is_measured():
    images = np.zeros((20, 28, 28, 1), np.uint8)
    images[:, 4:24, 8:20] = 255
    assert object_size(images) == pytest.approx(20 / 28)
    assert object_size(255 - images) == pytest.approx(20 / 28)
    assert object_size(np.random.default_rng(0).integers(0, 256, images.shape)) is None
    assert object_size(np.repeat(images, 3, -1)) is None
    assert object_size(np.zeros((3, 28, 28, 1), np.uint8)) is None


@pytest.mark.parametrize("fit", [True, False])
def test_drawings_become_dark_on_light_where_the_run_is(fit):
    picture = drawing(40, 170)
    negative = ImageOps.invert(picture)
    light = read(picture, fit=fit)
    for one in (picture, negative):
        np.testing.assert_allclose(read(one, fit=fit), light, atol=0.01)
        np.testing.assert_allclose(read(one, fit=fit, dark=True), 1 - light, atol=0.01)


@pytest.mark.parametrize("fit", [True, False])
def test_a_blank_image_is_refused(fit):
    with pytest.raises(InputError, match="blank"):
        read(Image.new("L", (50, 50), 130), fit=fit)


def test_too_many_pixels_are_refused_before_they_are_decoded():
    with pytest.raises(InputError, match="the limit is"):
        read(Image.new("1", (5000, 5000)))


BAD = ["", "x", "data:,", "data:image/png;base64,", "data:image/png;base64,AAAA", "é"]


@pytest.mark.parametrize("content", [*BAD, url(drawing(), "JPEG")[:400], url(drawing(), "TIFF")])
def test_what_is_no_image_is_refused(content):
    with pytest.raises(InputError, match="not a readable image"):
        from_data_url(content, GREY, MNIST_SIZE, True, Polarity())


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("shape", [GREY, COLOUR])
def test_every_mode(mode, shape):
    picture = drawing().convert("RGB").convert(mode)
    kind = "JPEG" if mode == "CMYK" else "PNG"
    image = from_data_url(url(picture, kind), shape, MNIST_SIZE if shape == GREY else None, True, Polarity())
    assert image.shape == shape
    assert 0 <= image.min() < 0.1 < 0.9 < image.max() <= 1
