"""Settings that make runs and evaluations take seconds."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from capspoe.evaluate import baselines, features, run

SETTINGS = {
    "size": 12, "limit": 256, "channels": 16, "layers": "4x6", "autoencoder_epochs": 12, "epochs": 15, "min_steps": 0,
    "batch_size": 32, "prior_components": 2, "threads": 1,
}  # fmt: skip
FEW = {"traversal_starts": 2}


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Make evaluations take seconds, without compiling kernels."""
    patch.setenv("CAPSPOE_BACKEND", "reference")
    patch.setattr(features, "MIN_STEPS", 120)
    patch.setattr(baselines, "RBM_GIBBS", 20)
    for name in ("FULL", "QUICK"):
        patch.setattr(run, name, getattr(run, name)._replace(**FEW))


@contextmanager
def short(cache) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CAPSPOE_DATA", str(cache))
        shorten(patch)
        yield
