"""Measures of shapes whose sizes are known, and of traversals that change them in a known way."""

import numpy as np
import pytest
from scipy import ndimage
from scipy.stats import spearmanr

from capspoe.errors import InputError
from capspoe.evaluate import measures
from capspoe.evaluate.measures import (
    MEASURES,
    height,
    on_dark_ground,
    rank_correlation,
    slant,
    thickness,
    width,
)

FINE = 8  # shapes are drawn so much larger and then averaged down, as a camera would


def bar(wide, tall, lean=0.0, side=28):
    """A bar of wide x tall pixels that leans to the right by `lean` degrees."""
    y, x = (np.mgrid[0 : side * FINE, 0 : side * FINE] + 0.5) / FINE - side / 2
    upright = x + y * np.tan(np.radians(lean))  # y grows downwards
    shape = (np.abs(upright) <= wide / 2) & (np.abs(y) <= tall / 2)
    return shape.reshape(side, FINE, side, FINE).mean((1, 3))


@pytest.mark.parametrize("wide", [2.0, 5.0])
@pytest.mark.parametrize("angle", [0, 20, 45, 90])
def test_thickness_of_a_stroke_at_any_angle(wide, angle):
    stroke = ndimage.rotate(bar(wide, 60.0, side=64), angle, reshape=False, order=1)[18:46, 18:46]
    # The stroke leaves the picture, whose border counts as an edge: 2 A / P is a little below its width.
    assert thickness(stroke[None])[0] == pytest.approx(wide, rel=0.17)


def test_slant_is_the_lean_to_the_right_in_degrees():
    lean = [-30, -10, 0, 10, 30]
    assert slant(np.stack([bar(3.0, 20.0, angle) for angle in lean])) == pytest.approx(lean, abs=1.5)
    assert slant(np.stack([np.eye(28)[::-1], np.eye(28)])) == pytest.approx([45, -45])


@pytest.mark.parametrize(("wide", "tall"), [(4.0, 20.0), (12.0, 12.0), (20.0, 6.0)])
def test_width_and_height(wide, tall):
    upright, _ = images = np.stack([bar(wide, tall), bar(wide, tall, 30)])
    assert width(images if tall > wide else upright[None]) == pytest.approx(wide, abs=0.8)  # the slant is removed
    assert height(images) == pytest.approx(tall, abs=0.8)


@pytest.mark.parametrize("name", MEASURES)
def test_what_does_not_matter(name):
    """Brightness, position, colours, bytes, and blank images beside it."""
    image = bar(3.0, 14.0, 12)
    (expected,) = MEASURES[name](image[None])
    same = np.stack([image, 0.3 * image, np.roll(image, (3, -4), (0, 1)), np.zeros_like(image)])
    assert MEASURES[name](same) == pytest.approx([expected, expected, expected, 0], abs=1e-9)
    assert MEASURES[name](np.repeat(image[None, ..., None], 3, -1)) == pytest.approx([expected])
    assert MEASURES[name]((image[None] * 255).round().astype(np.uint8)) == pytest.approx(
        [expected], rel=0.02, abs=0.1
    )


def test_wrong_images_are_refused():
    with pytest.raises(InputError, match="shape"):
        thickness(np.zeros((28, 28)))
    with pytest.raises(InputError, match="NaN"):
        slant(np.full((1, 4, 4), np.nan))


def test_dark_ground():
    assert on_dark_ground(np.stack([bar(3.0, 20.0), 1 - bar(3.0, 20.0)])).tolist() == [True, False]


def test_rank_correlation_is_scipys():
    values = np.random.default_rng(0).standard_normal((6, 9))
    values[1, 3] = values[1, 4]
    np.testing.assert_allclose(rank_correlation(values), [spearmanr(v, np.arange(9)).statistic for v in values])
    assert rank_correlation(np.ones((1, 5))) == 0


def test_the_dimension_that_controls_a_measure_is_found(data, monkeypatch):
    t = np.linspace(-1, 1, 9)
    still, lean = [bar(3, 20) for _ in t], [bar(3, 20, -17 * s) for s in t]
    thicker = [bar(3 + s, 20) for s in t[[0, 1, 2, 4, 3, 5, 6, 7, 8]]]  # not perfectly
    invisible = [0.98 * bar(3, 20) + 0.01 * (1 - s) * bar(3, 20) + 0.01 * (1 + s) * bar(4, 20) for s in t]
    drawn = {
        0: [[lean, lean], [invisible, invisible], [thicker, thicker]],
        1: [[still, still], [invisible, invisible], [still, still]],
        2: [[still, still], [still, still], [thicker, thicker[::-1]]],  # depends on the start
    }

    def decoded(network, capsule, z):
        assert z.shape == (6, 2, 9, 6)
        return np.array(drawn.get(capsule, [[still, still]]))[..., None]

    monkeypatch.setattr(measures, "decode_poses", decoded)
    rng = np.random.default_rng(0)
    test = np.array([bar(rng.uniform(2, 4), 20, rng.uniform(-17, 17)) for _ in range(60)])
    found = measures.instantiation(data.network, test, "principal", starts=2, seed=0)
    thick, slanted = found["thickness"], found["slant"]
    assert [row["dimension"] for row in thick["capsules"][:2]] == [2, 1]
    assert thick["capsules"][0]["correlation"] == pytest.approx(1 - 6 * 2 / (9 * 80))
    change = np.ptp(thickness(np.array(thicker))) / thickness(test).std()
    assert thick["capsules"][0]["effect"] == pytest.approx(change)
    assert thick["capsules"][1]["correlation"] == pytest.approx(1)
    assert 0 < thick["capsules"][1]["effect"] < 0.1
    assert thick["capsules"][2]["correlation"] == pytest.approx(0)
    assert slanted["capsules"][0] == pytest.approx({"dimension": 0, "correlation": -1, "effect": 3.5}, abs=0.5)
    assert thick["share_of_capsules"] == slanted["share_of_capsules"] == 0.25
