"""The likelihood of codes in an evaluation; tests/core/test_likelihood.py has log Z."""

import numpy as np
import pytest

from capspoe.evaluate.likelihood import likelihood


def test_independent_units_have_their_entropy(data, monkeypatch):
    """Codes of fair bits: V units have V log 2 nats, and the trained layer knows nothing better."""
    half = data.train._replace(codes=np.full_like(data.train.codes, 0.5))
    monkeypatch.setattr(data, "train", half)
    monkeypatch.setattr(data, "test", half)
    found = likelihood(data)
    assert found["units"] == data.train.codes[0].size
    assert found["log_p_independent"] == pytest.approx(-found["units"] * np.log(2), rel=0.01)
    assert found["log_p_upper"] < found["log_p_independent"]
    assert found["log_p_lower"] == pytest.approx(found["log_p_upper"], abs=1)
