"""Scores of a trained run, beside baselines on the same data.

>>> capspoe.evaluate.quick_scores(model)      # seconds, for experiments
>>> capspoe.evaluate.evaluate("runs/mnist")   # what `capspoe evaluate` does
"""

from capspoe.evaluate.baselines import variant
from capspoe.evaluate.run import evaluate, quick_scores

__all__ = ["evaluate", "quick_scores", "variant"]
