"""Finished parts of an evaluation, kept in the run folder so that the next one need not repeat them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from capspoe.durable import write_atomically, writing

VERSION = 1  # raised when a score's definition changes, so that an old number is not taken for a new one


def fingerprint(weights: dict[str, torch.Tensor], settings: dict[str, Any]) -> str:
    """A hash of the weights, bit by bit, and of what was asked for."""
    seen = hashlib.sha256(json.dumps([VERSION, settings], sort_keys=True).encode())
    for name in sorted(weights):
        seen.update(name.encode())
        seen.update(weights[name].detach().cpu().contiguous().numpy().tobytes())
    return seen.hexdigest()[:20]


class Cache:
    """JSON files in a folder; a name counts only for the weights and settings that it was made with."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder, key

    def path(self, name: str) -> Path:
        return self.folder / f"{name}-{self.key}.json"

    def get(self, name: str) -> Any:
        """What was stored, or None when it is not there or not whole."""
        try:
            stored = json.loads(self.path(name).read_text(encoding="utf-8"))
            return stored["value"] if stored["sha256"] == _checksum(stored["value"]) else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, name: str, value: Any) -> None:
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            stored = {"sha256": _checksum(value), "value": value}
            write_atomically(self.path(name), (json.dumps(stored, indent=1) + "\n").encode())

    def or_make(self, name: str, make: Callable[[], Any]) -> Any:
        value = self.get(name)
        if value is None:
            value = make()
            self.put(name, value)
        return value


def _checksum(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
