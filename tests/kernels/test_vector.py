"""The vector type's functions against NumPy."""

import numpy as np

from capspoe.kernels.vector import LANES
from capspoe.kernels.winner import sigmoid


def test_the_exponential_is_good_to_the_last_bits():
    x = np.linspace(-95, 95, LANES * 1000, dtype=np.float32)
    found = x.copy()
    sigmoid(found)
    right = 1 / (1 + np.exp(-x.astype(np.float64)))
    error = np.abs(found / right - 1)
    assert error[np.abs(x) < 2].max() < 2.5e-7
    assert error[np.abs(x) < 80].max() < 1e-5  # the rounding of x log2(e) itself
    assert np.abs(found - right).max() < 3e-7
