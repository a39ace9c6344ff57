"""Evaluations that take seconds."""

import pytest
import torch
from short import shorten

from capspoe.evaluate.scoring import _YARDSTICKS


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of its own, a feature net trained in a moment, and few epochs for the baselines."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CAPSPOE_DATA", str(tmp_path_factory.mktemp("cache")))
    shorten(patch)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _YARDSTICKS.clear()
    yield
    torch.set_num_threads(threads)
    _YARDSTICKS.clear()
    patch.undo()
