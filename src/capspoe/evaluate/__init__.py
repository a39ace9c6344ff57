"""Scores of a trained run, beside baselines on the same data.

>>> capspoe.evaluate.quick_scores(model)      # seconds, for experiments
>>> capspoe.evaluate.evaluate("runs/mnist")   # what `capspoe evaluate` does
"""

from typing import Any

__all__ = ["evaluate", "quick_scores", "variant"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Here, since the baselines' libraries take seconds to import, and figures need none of them.
    from capspoe.evaluate import baselines, run

    if name == "variant":
        return baselines.variant
    return getattr(run, name)
