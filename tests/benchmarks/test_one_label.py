"""One label for each capsule."""

from types import SimpleNamespace

import numpy as np
from benchmarks.quality.one_label import accuracy, most_certain

from capspoe.data import Images


def test_the_image_that_a_capsule_is_most_certain_of_names_it():
    on = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8], [0.55, 0.45]])
    assert most_certain(on).tolist() == [0, 3]
    model = SimpleNamespace(encode=lambda pixels: SimpleNamespace(on=on[pixels]))
    train = Images(np.arange(5), np.array([7, 8, 3, 4, 7]))
    test = Images(np.array([1, 2, 4, 3]), np.array([7, 3, 7, 4]))
    assert accuracy(model, train, test) == 0.75  # the second one is named 4
