"""Everything about the search that can be tuned, in one place."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float, Int
from torch import Tensor

Decode = Callable[[Int[Tensor, " R"], Float[Tensor, "R N"]], Float[Tensor, "R C H W"]]
"""Decodes R capsules, by number, with their whitened poses."""

Start = Callable[[Decode, tuple[int, int], Float[Tensor, "B C H W"]], Float[Tensor, "B J s N"]]
"""Finds s poses of each of J capsules to start from, given a decoder, its (J, N), and images."""


@dataclass(frozen=True)
class Ascent:
    """Adam with a learning rate that falls linearly."""

    steps: int
    rate: float  # at the first step
    final_fraction: float = 0.2  # of the rate, where it would be after the last step
    betas: tuple[float, float] = (0.8, 0.95)  # shorter memories than usual, because the steps are few

    def rate_at(self, step: int) -> float:
        return self.rate * (1 - (1 - self.final_fraction) * step / self.steps)


FITTED = (1.0, 1.1, 1.2)
"""Enlargements for counting objects in a picture that was scaled to the usual size of one object. Objects that do not
lie exactly over each other need more room together, so each of them is smaller than usual."""


@dataclass(frozen=True)
class Search:
    """Weights of the objective and effort of the search.

    They were chosen on superposed training digits of MNIST; docs/scenes.md lists what else was tried.
    """

    # The objective of whole explanations.
    error_weight: float = 3.0  # lambda, of the errors of the pixels
    tolerance: float = 0.1  # epsilon: errors count squared below it, and by their absolute value above
    excess: float = 0.5  # factor on errors where a single object has ink and the image none: it may have a hole
    pose_weight: float = 0.25  # of |v|^2
    recognition_weight: float = 6.0  # beta, of the recognition network's log-probability
    object_cost: float = 16.0  # of an object, when their number is not given and no recognition network counts
    temperature: float = 4.0  # of the probabilities: with it, their mean over 192 pairs is the share of right sets

    # The objective of proposals, which explain a part of an image.
    covered_weight: float = 0.6  # of ink that the object and the image share
    added_weight: float = 6.0  # of squared errors where the object has ink that the image has not

    # Step 1: proposals.
    start: Start | None = None  # where proposals start; None: at each capsule's mean, and at the best of its draws
    starts: int = 2  # poses of each capsule to start from, the mean included
    draws: int = 50  # poses drawn in each capsule; the best become starts
    draw_scale: float = 0.7  # factor on these poses
    proposal: Ascent = Ascent(steps=20, rate=0.25)

    # Step 2: selection. Step 3: refinement.
    max_composed: int = 800  # sets of proposals that are composed, unless k different capsules need more
    selected_sets: int = 60  # fitted with the linear decoder
    refined_sets: int = 8  # fitted with the network's own decoder
    selection: Ascent = Ascent(steps=15, rate=0.2)
    refinement: Ascent = Ascent(steps=15, rate=0.2)

    # Objects.
    shift: float = 0.0  # pixels by which objects may be moved
    max_tried: int = 3  # objects, when their number is not given
    enlargements: tuple[float, ...] = (1.0,)  # of an image; the recognition network's counts are averaged over them
    max_objects: int = 4  # beyond it there are too many sets to compose
    logit_scale: float = 2.0  # of the decoded codes: softer than that of samples, so that poses have gradients

    # Memory.
    chunk_size: int = 32  # images searched at once

    def for_objects(self, k: int) -> "Search":
        """The settings for k objects: several may fill each other's holes, so all errors count in full."""
        return self if k == 1 else replace(self, excess=1.0)


DEFAULT = Search()
