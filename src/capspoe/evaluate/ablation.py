"""Each ingredient of a run switched off, one at a time, everything else as it is."""

from collections.abc import Callable
from functools import partial
from typing import Any

from capspoe.evaluate import baselines
from capspoe.evaluate.material import Made
from capspoe.evaluate.rows import Row, Rows
from capspoe.model import CapsulePoE
from capspoe.stages import fit_prior

# What is trained anew, on the same codes, and what changes only how images are drawn.
TRAINED: dict[str, dict[str, Any]] = {
    "without neighbours: the gate anneals": {"neighbours": 0},
    "the gate is not taught": {"teach": 0.0},
    "the agreement not scaled down": {"sharpness": 1.0},
    "one routing iteration": {"iterations": 1},
}
DRAWN: dict[str, dict[str, Any]] = {
    "one Gaussian a capsule": {"components": 1},
    "spread 1": {"spread": 1.0},
    "contrast 1": {"contrast": 1.0},
}


def ablations(rows: Rows) -> dict[str, Callable[[], list[Row]]]:
    """The parts of an evaluation that switch something off; what is off already is left out."""
    config = rows.model.config
    settings = {**vars(config.capsules), **vars(config.training)}

    def differs(changes: dict[str, Any]) -> bool:
        return any(settings[name] != value for name, value in changes.items())

    parts: dict[str, Callable[[], list[Row]]] = {}
    for name, changes in TRAINED.items():
        if differs(changes):
            parts[name] = partial(rows.variant, name, **changes)
    for name, changes in DRAWN.items():
        if differs(changes):
            parts[name] = partial(redrawn, rows, name, changes)
    return parts


def redrawn(rows: Rows, name: str, changes: dict[str, Any]) -> list[Row]:
    """The same weights with another way to draw from them."""
    model = rows.model
    other = CapsulePoE(model.config.replace(**changes), model.image)
    weights = model.state_dict()
    if "components" in changes:
        weights |= {f"prior.{k}": v for k, v in other.prior.state_dict().items()}
    other.load_state_dict(weights)
    if "components" in changes:
        fit_prior(other, rows.material.train_codes)

    def make() -> Made:
        return baselines.of_capsules(other.eval(), rows.material, "fitted")

    return [rows.row(name, make, probed=False)]
