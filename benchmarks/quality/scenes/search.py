"""The search of `capspoe.infer.explain` with other compositions, for whole batches, and for given capsules."""

import torch
from torch import Tensor

from capspoe.infer.explain import (
    MAXIMUM,
    Ascent,
    Composition,
    Decoders,
    Explanation,
    Maximum,
    Objective,
    Search,
    fit,
    last,
    misfit,
    propose,
    search_steps,
)
from capspoe.model.recognition import Recognised

DEFAULT = Search()
FIT = Ascent(steps=25, rate=0.2)  # where poses alone are searched


class SoftMaximum(Maximum):
    """The maximum with every pixel shared between the objects: routing weights in the middle of the search."""

    def compose(self, objects: Tensor) -> Tensor:
        return (self.responsibilities(objects)[:, :, None] * objects).sum(1)


def explain_by(
    decoders: Decoders,
    x: Tensor,
    k: int,
    recognised: Recognised | None = None,
    composition: Composition = MAXIMUM,
    search: Search = DEFAULT,
) -> Explanation:
    """Explain images (B, C, H, W) by k objects each, with what a recognition network says of them, if there is one.

    Whatever the search composes by, pixels are given to the objects by the maximum, so that rows are comparable.
    """
    parts = []
    for rows in torch.arange(len(x)).split(search.chunk_size):
        known = None if recognised is None else recognised.of(rows)
        sets = last(search_steps(decoders, x[rows], k, composition, search, known))
        parts.append(Explanation.of(sets, MAXIMUM))
    return Explanation.concatenate(parts)


def fit_poses(decoders: Decoders, x: Tensor, capsule: Tensor) -> Explanation:
    """Explain images by given capsules (B, k): only the poses are searched."""
    n, k = capsule.shape
    search = DEFAULT.for_objects(k)
    alone = propose(decoders, Objective(x, search=search))
    # Proposals are sorted by capsule; the first of each capsule started at its mean.
    pose_of_capsule = alone.pose[:, :: search.starts, 0]
    pose = pose_of_capsule[torch.arange(n)[:, None, None], capsule[:, None]]

    def likelihood(objects: Tensor) -> Tensor:
        return -misfit(objects.amax(2), x[:, None], search)

    for decode in (decoders.linear, decoders.exact):
        sets = last(fit(decode, capsule[:, None], pose, likelihood, FIT))
        pose = sets.pose
    return Explanation.of(sets, MAXIMUM)
