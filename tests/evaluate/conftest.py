"""Evaluations that take seconds."""

from dataclasses import replace

import pytest
import torch

from capspoe.evaluate import baselines, features
from capspoe.evaluate import run as orchestration
from capspoe.evaluate.scoring import _YARDSTICKS


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache of its own, a feature net trained in a moment, and few epochs for the baselines."""
    patch = pytest.MonkeyPatch()
    patch.setenv("CAPSPOE_DATA", str(tmp_path_factory.mktemp("cache")))
    patch.setattr(features, "LEAST_STEPS", 120)
    patch.setattr(baselines, "RBM_STEPS", 20)
    patch.setattr(baselines, "PIXEL_EPOCHS", 2)
    few = {"ais_steps": 60, "ais_chains": 20, "traversal_starts": 2, "gibbs": 5}
    for name in ("FULL", "QUICK"):
        patch.setattr(orchestration, name, replace(getattr(orchestration, name), **few))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _YARDSTICKS.clear()
    yield
    torch.set_num_threads(threads)
    _YARDSTICKS.clear()
    patch.undo()
