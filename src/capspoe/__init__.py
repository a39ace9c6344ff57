"""Capsule networks trained without labels, as a routing-weighted product of expert neurons (Hauser 2019)."""

from importlib import import_module
from typing import Any

from capspoe.threads import wait_briefly

__version__ = "0.2.0"

wait_briefly()

# Imported when first used, so that `capspoe --help` does not wait for PyTorch.
_PUBLIC = {
    "CapsuleLayer": "capspoe.model.layer",
    "CapsulePoE": "capspoe.run.model",
    "Codec": "capspoe.model.codec",
    "Config": "capspoe.config",
    "ConvAutoencoder": "capspoe.model.autoencoder",
    "Pixels": "capspoe.model.pixels",
    "Routing": "capspoe.model.routing",
    "audit_routing": "capspoe.infer.audit",
    "fit": "capspoe.training.fit",
    "reverse_route": "capspoe.model.routing",
    "route": "capspoe.model.routing",
    "squash": "capspoe.model.routing",
    "train": "capspoe.run.train",
}
__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'capspoe' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
