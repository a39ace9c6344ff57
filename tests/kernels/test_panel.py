"""The panel type's functions against NumPy."""

import numpy as np

from capspoe.kernels.panel import GROUP, LANES, add_products, by_image, by_lane, exp2, load, store, sum_lanes
from capspoe.kernels.threads import compiled


@compiled
def powers(x_VP):
    for v in range(len(x_VP)):
        store(x_VP, (v,), exp2(load(x_VP, (v,))))


@compiled
def products(x_G, y_L, images_L, lanes_G):
    x, y = by_image(x_G, ()), by_lane(y_L, ())
    add_products(images_L, (), x, y)
    sum_lanes(lanes_G, (), x * y)


def test_the_exponential_is_good_to_the_last_bits():
    x = np.linspace(-125, 126, GROUP * LANES * 1000, dtype=np.float32)
    found = x.reshape(1000, -1).copy()
    powers(found)
    right = np.exp2(x.astype(np.float64))
    assert np.abs(found.ravel() / right - 1).max() < 2.5e-7


def test_images_and_lanes_are_repeated_and_added_up():
    x, y = np.arange(1, GROUP + 1, dtype=np.float32), np.arange(2, LANES + 2, dtype=np.float32)
    images, lanes = np.ones(LANES, np.float32), np.ones(GROUP, np.float32)
    products(x, y, images, lanes)
    np.testing.assert_array_equal(images, 1 + x.sum() * y)  # added to what is there
    np.testing.assert_array_equal(lanes, y.sum() * x)
