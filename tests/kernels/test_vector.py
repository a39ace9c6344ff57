"""The vector type's functions against NumPy."""

import numpy as np

from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import LANES, exp2, load, store


@compiled
def powers(x_):
    for at in range(0, len(x_), LANES):
        store(x_, at, exp2(load(x_, at)))


def test_the_exponential_is_good_to_the_last_bits():
    x = np.linspace(-125, 126, LANES * 1000, dtype=np.float32)
    found = x.copy()
    powers(found)
    right = np.exp2(x.astype(np.float64))
    assert np.abs(found / right - 1).max() < 2.5e-7
