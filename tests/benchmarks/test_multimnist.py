"""The scenes of MultiMNIST."""

import numpy as np
import pytest
from benchmarks.quality.multimnist import multimnist, on_canvas, overlap

from capspoe.data import Images


def test_digits_of_different_classes_are_moved_by_up_to_four_pixels():
    pixels = np.zeros((50, 28, 28, 1), np.uint8)
    pixels[:, 10, 12] = 200
    labels = np.arange(50) % 10
    scenes = multimnist(Images(pixels, labels), 300, seed=0)
    assert scenes.images.shape == (300, 36, 36, 1)
    assert (scenes.labels[:, 0] != scenes.labels[:, 1]).all()
    assert np.array_equal(scenes.images, scenes.objects.max(1))
    places = np.argwhere(scenes.objects[..., 0])[:, 2:]
    assert len(places) == 600  # no digit leaves the canvas
    for axis, middle in enumerate((14, 16)):
        assert set(places[:, axis]) == set(range(middle - 4, middle + 5))
    assert on_canvas(pixels)[0, 14, 16] == 200


def test_the_overlap_is_the_mean_product_of_the_sides():
    moves = np.arange(-4, 5)
    side = np.mean([[20 - abs(one - two) for one in moves] for two in moves])
    assert overlap(np.random.default_rng(0)) == pytest.approx(side**2 / 400, abs=0.002)
