"""Codes that are compared with those of fewer bits have all their bits."""

import numpy as np
from benchmarks.quality.code_precision import exact_codes, stored


def test_exact_codes_are_not_rounded(model):
    codes = exact_codes(model)
    assert codes.dtype == np.float32
    assert (codes.astype(np.float16) != codes).mean() > 0.5


def test_stored_codes_have_few_values():
    codes = np.linspace(0, 1, 10_001, dtype=np.float32)
    assert len(np.unique(stored(codes, "uint8"))) == 256
    assert np.abs(stored(codes, "uint8") - codes).max() < 0.002
    assert (stored(codes, "float32") == codes).all()
