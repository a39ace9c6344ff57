"""Measures against shapes whose sizes are known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage

from capspoe.errors import InputError
from capspoe.measure import MEASURES, height, on_dark_ground, slant, thickness, width

FINE = 8  # shapes are drawn so much larger, and then averaged down, as a camera would


def bar(wide, tall, lean=0.0, side=28):
    """A bar of wide x tall pixels, sheared to the right by `lean` degrees."""
    y, x = (np.mgrid[0 : side * FINE, 0 : side * FINE] + 0.5) / FINE - side / 2
    upright = x + y * np.tan(np.radians(lean))  # y grows downwards
    shape = (np.abs(upright) <= wide / 2) & (np.abs(y) <= tall / 2)
    return shape.reshape(side, FINE, side, FINE).mean((1, 3))


@pytest.mark.parametrize("wide", [2.0, 3.0, 5.0])
@pytest.mark.parametrize("angle", [0, 20, 45, 70, 90])
def test_thickness_of_a_stroke_at_any_angle(wide, angle):
    stroke = ndimage.rotate(bar(wide, 60.0, side=64), angle, reshape=False, order=1)[18:46, 18:46]
    # The stroke leaves the picture, whose border counts as an edge: 2 A / P is a little below its width.
    assert thickness(stroke[None])[0] == pytest.approx(wide, rel=0.17)


def test_thickness_orders_strokes_and_ignores_brightness():
    strokes = np.stack([bar(w, 20.0) for w in (1.5, 2.0, 2.5, 3.0, 4.0, 6.0)])
    found = thickness(strokes)
    assert (np.diff(found) > 0).all()
    assert thickness(0.3 * strokes) == pytest.approx(found)


@pytest.mark.parametrize("lean", [-30, -10, 0, 10, 30])
def test_slant_is_the_lean_in_degrees(lean):
    assert slant(bar(3.0, 20.0, lean)[None])[0] == pytest.approx(lean, abs=1.5)


def test_slant_is_positive_when_the_top_leans_right():
    assert slant(np.eye(28)[None, ::-1])[0] == pytest.approx(45, abs=1e-6)
    assert slant(np.eye(28)[None])[0] == pytest.approx(-45, abs=1e-6)


@pytest.mark.parametrize(("wide", "tall"), [(4.0, 20.0), (12.0, 12.0), (20.0, 6.0)])
def test_width_and_height(wide, tall):
    image = bar(wide, tall)[None]
    assert width(image)[0] == pytest.approx(wide, abs=0.8)
    assert height(image)[0] == pytest.approx(tall, abs=0.8)


def test_leaning_is_not_width():
    upright, leaning = width(np.stack([bar(4.0, 20.0), bar(4.0, 20.0, 30)]))
    assert leaning == pytest.approx(upright, abs=0.7)


@pytest.mark.parametrize("name", MEASURES)
def test_a_blank_image_measures_nothing(name):
    images = np.stack([np.zeros((28, 28)), bar(3.0, 20.0, 10)])
    found = MEASURES[name](images)
    assert found[0] == 0
    assert found[1] != 0


@pytest.mark.parametrize("name", MEASURES)
def test_colours_bytes_and_chunks(name):
    image = bar(3.0, 18.0, 15)
    one = MEASURES[name](image[None])
    assert MEASURES[name](np.repeat(image[None, ..., None], 3, -1)) == pytest.approx(one)
    assert MEASURES[name]((image[None] * 255).round().astype(np.uint8)) == pytest.approx(
        one, rel=1e-2, abs=0.1
    )
    many = MEASURES[name](np.repeat(image[None], 2100, 0))
    assert many.shape == (2100,)
    assert many == pytest.approx(np.full(2100, one[0]))


@given(arrays(np.float64, (3, 7, 9), elements=st.floats(0, 1)))
def test_any_image_gives_finite_numbers(images):
    for measure in MEASURES.values():
        found = measure(images)
        assert found.shape == (3,)
        assert np.isfinite(found).all()


def test_none_of_them_moves_with_the_image():
    image = bar(3.0, 14.0, 12)
    moved = np.roll(image, (3, -4), (0, 1))
    for measure in MEASURES.values():
        assert measure(moved[None]) == pytest.approx(measure(image[None]), abs=1e-9)


def test_wrong_images_are_refused():
    with pytest.raises(InputError, match="shape"):
        thickness(np.zeros((28, 28)))
    with pytest.raises(InputError, match="NaN"):
        slant(np.full((1, 4, 4), np.nan))


def test_ground():
    assert on_dark_ground(np.stack([bar(3.0, 20.0), 1 - bar(3.0, 20.0)])).tolist() == [True, False]
