"""Measures on drawn bars, and whether a traversal's correlation is the textbook's."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from capspoe.evaluate.instantiation import spearman
from capspoe.evaluate.measure import height, slant, thickness, width


def bar(thick, lean=0.0, side=28, long=20):
    """A vertical bar, leaning by `lean` pixels to the right for each pixel upwards; edges drawn in part."""
    y, x = np.mgrid[0:side, 0:side].astype(float)
    middle = (side - 1) / 2
    from_axis = np.abs(x - middle - lean * (middle - y)) / np.sqrt(1 + lean**2)
    image = np.clip(thick / 2 + 0.5 - from_axis, 0, 1)
    return image * (np.abs(y - middle) <= long / 2)


def test_thickness_of_bars():
    found = thickness(np.stack([bar(t) for t in (2, 3, 4, 5)]))
    expected = [2 * t * 20 / (2 * (t + 20)) for t in (2, 3, 4, 5)]  # 2 area / perimeter
    np.testing.assert_allclose(found, expected, rtol=0.06)
    assert (np.diff(found) > 0.5).all()


@pytest.mark.parametrize("lean", [-0.5, -0.2, 0.0, 0.2, 0.5])
def test_slant_of_bars(lean):
    assert slant(bar(3, lean)[None])[0] == pytest.approx(np.degrees(np.arctan(lean)), abs=1.5)


def test_width_and_height_of_a_box():
    box = np.zeros((1, 28, 28, 1))
    box[0, 4:24, 10:17] = 0.8
    assert width(box)[0] == pytest.approx(7, abs=1e-6)
    assert height(box)[0] == pytest.approx(20, abs=1e-6)


def test_leaning_is_not_width():
    upright, leaning = (width(bar(3, lean)[None])[0] for lean in (0, 0.4))
    assert leaning == pytest.approx(upright, abs=0.6)


def test_brightness_changes_nothing():
    image = bar(3, 0.2)[None]
    for measure in (thickness, slant, width, height):
        assert measure(0.5 * image) == pytest.approx(measure(image))
        assert np.isfinite(measure(np.zeros((2, 28, 28)))).all()


def test_spearman_is_scipys():
    values = np.random.default_rng(0).standard_normal((6, 9))
    values[1, 3] = values[1, 4]
    expected = [spearmanr(row, np.arange(9)).statistic for row in values]
    np.testing.assert_allclose(spearman(values), expected)
    assert spearman(np.ones((1, 5))) == 0
