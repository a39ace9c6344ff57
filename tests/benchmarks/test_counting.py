"""The scenes whose objects are counted."""

import numpy as np
from benchmarks.quality import counting


def test_scenes_are_the_maximum_of_moved_images(monkeypatch):
    monkeypatch.setattr(counting, "IMAGES", 5)
    pixels = np.zeros((3, 28, 28, 1), np.uint8)
    pixels[:, 10:18, 10:18] = 255
    for count in (1, 3):
        scenes = counting.superposed(pixels, count, np.random.default_rng(0))
        assert scenes.shape == (5, 28, 28)
        assert (scenes.sum((1, 2)) >= 64).all()
        assert (scenes[:, 12:16, 12:16] == 1).all()  # at most two pixels away
        assert (scenes[:, :8] == 0).all()
    single = counting.superposed(pixels, 1, np.random.default_rng(0))
    assert (single.sum((1, 2)) == 64).all()


def test_a_drawing_is_read_as_light_on_dark_again():
    scene = np.zeros((28, 28), np.float32)
    scene[6:20, 10:14] = 1
    read = counting.drawn(scene)
    assert read.shape == (28, 28)
    assert read[14, 14] > 0.9
    assert read[0].max() < 0.1
