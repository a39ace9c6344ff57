"""Capsule networks trained without labels, as a routing-weighted product of expert neurons (Hauser 2019)."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Names are imported when first used, so that `capspoe --help` does not wait for PyTorch.
_HOME = {
    "CapsulePoE": "capspoe.model",
    "CapsuleLayer": "capspoe.capsules",
    "ConvAutoencoder": "capspoe.autoencoder",
    "Routing": "capspoe.routing",
    "reverse_route": "capspoe.routing",
    "route": "capspoe.routing",
    "squash": "capspoe.routing",
    "train": "capspoe.training",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'capspoe' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
