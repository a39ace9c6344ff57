"""Evaluations that take seconds, in this process and in those that a test starts."""

from dataclasses import replace
from pathlib import Path

import pytest

from capspoe.evaluate import baselines, features, settings


def shorten(patch: pytest.MonkeyPatch) -> None:
    """A feature net trained in a moment, and few epochs for the baselines."""
    patch.setattr(features, "LEAST_STEPS", 120)
    patch.setattr(baselines, "RBM_STEPS", 20)
    patch.setattr(baselines, "PIXEL_EPOCHS", 2)
    few = {"ais_steps": 60, "ais_chains": 20, "traversal_starts": 2, "gibbs": 5}
    for name in ("FULL", "QUICK"):
        patch.setattr(settings, name, replace(getattr(settings, name), **few))


def shortened(code: str) -> str:
    """The code of a process of its own, with the same patches."""
    patched = "import pytest, short; short.shorten(pytest.MonkeyPatch())"
    return f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); {patched}\n{code}"
