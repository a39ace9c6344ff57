"""Features of photographs by several threads."""

import numpy as np
import pytest
import torch

from capspoe.sorting.photos import PhotoFeatures
from capspoe.training.views import photo_features, photos_installed


@pytest.mark.skipif(not photos_installed(), reason="needs the extra photos")
def test_threads_compute_what_one_does_in_order():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (7, 40, 40, 3), np.uint8)
    expected = photo_features(pixels)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with PhotoFeatures() as network:
            assert np.allclose(network.of(pixels), expected, atol=1e-4)
            assert np.allclose(network.of(pixels[:1]), expected[:1], atol=1e-4)  # fewer images than threads
    finally:
        torch.set_num_threads(before)
