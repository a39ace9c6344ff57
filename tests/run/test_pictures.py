"""Images as PNG files."""

import numpy as np
import pytest
from PIL import Image

from capspoe.run.pictures import (
    sample_grid,
    tile,
    tile_columns,
    to_rgb_or_grey,
    to_uint8,
    write_png,
    write_sample_grid,
)


def test_values_are_clipped_and_rounded():
    assert to_uint8(np.array([-1, 0, 0.5, 0.998, 1, 2])).tolist() == [0, 0, 128, 254, 255, 255]


@pytest.mark.parametrize("colours", [1, 2, 3, 4])
def test_other_numbers_of_channels_become_grey(colours):
    images = np.random.default_rng(0).random((2, 3, 3, colours), np.float32)
    shown = to_rgb_or_grey(images)
    expected = images if colours in (1, 3) else images.mean(-1, keepdims=True)
    np.testing.assert_array_equal(shown, expected, strict=True)


def test_tiles_lie_on_white_row_by_row(tmp_path):
    images = np.zeros((2, 3, 4, 5, 1), np.float32)
    images[1, 2] = 0.5
    picture = tile(images, gap=2, scale=2)
    assert picture.shape == ((2 * 6 - 2) * 2, (3 * 7 - 2) * 2, 1)
    assert (picture[:8, :10] == 0).all()
    assert (picture[8:12] == 255).all()
    assert (picture[12:, 28:] == 128).all()
    write_png(picture, tmp_path / "new" / "x.png")
    with Image.open(tmp_path / "new" / "x.png") as stored:
        np.testing.assert_array_equal(np.asarray(stored), picture[..., 0])


def test_many_columns_are_stacked_in_bands():
    images = np.random.default_rng(0).random((2, 7, 4, 5, 1), np.float32)
    picture = tile_columns(images, most=3, gap=1)  # bands of 3, 3 and 1 columns
    assert picture.shape == (3 * 9 + 2 * 4, 17, 1)
    np.testing.assert_array_equal(picture[:9], tile(images[:, :3], gap=1))
    np.testing.assert_array_equal(picture[13:22], tile(images[:, 3:6], gap=1))
    np.testing.assert_array_equal(picture[26:, :5], tile(images[:, 6:], gap=1))
    assert (picture[26:, 5:] == 255).all()
    assert (picture[9:13] == 255).all()
    np.testing.assert_array_equal(tile_columns(images, most=7), tile(images))


def test_the_grid_has_a_column_for_each_capsule(model, tmp_path):
    grid = sample_grid(model, rows=3, seed=5)
    assert grid.shape == (3, 4, 28, 28, 1)
    same = model.sample(12, capsule=[0, 1, 2, 3], seed=5)
    assert same.capsule.tolist() == [0, 1, 2, 3] * 3
    np.testing.assert_array_equal(grid[2, 1], same.images[9])
    write_sample_grid(model, tmp_path / "x.png", rows=3, seed=5)
    with Image.open(tmp_path / "x.png") as stored:
        np.testing.assert_array_equal(np.asarray(stored), tile(grid, scale=2)[..., 0])
