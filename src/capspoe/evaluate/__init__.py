"""Numbers on what a trained run claims, beside honest baselines.

>>> capspoe.evaluate.quick_scores(model)      # seconds, for experiments
>>> capspoe.evaluate.evaluate("runs/mnist")   # what `capspoe evaluate` does
"""

from capspoe.evaluate.baselines import variant
from capspoe.evaluate.run import evaluate
from capspoe.evaluate.scoring import quick_scores

__all__ = ["evaluate", "quick_scores", "variant"]
