"""The search of `capspoe.infer.explain` with other decoders, compositions and starts.

The only file of this folder that calls the internals of the search.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capspoe.infer import explain as internals
from capspoe.model.network import Network

CHUNK = internals.CHUNK
FIT_STEPS = 25
FIT_RATE = 0.2

maximum = internals.maximum
part_of = internals.part_of
Compose = internals.Compose
Decode = internals.Decode
Explanation = internals.Explanation
Sets = internals.Sets


class Searched(NamedTuple):
    """What the search puts together: J things with poses of N numbers, a cheap decoder of them, and the real one."""

    linear: Decode
    decode: Decode
    shape: tuple[int, int]


def capsules_of(network: Network) -> Searched:
    linear, decode = internals.decoders_of(network)
    return Searched(linear, decode, network.top.upper)


def with_linear_decoder(decode: Decode, shape: tuple[int, int]) -> Searched:
    """A decoder, and the linear one that fits it best."""
    return Searched(internals.linear_decoder(decode, shape), decode, shape)


def sharpened(code: Tensor) -> Tensor:
    """A code as the capsules' decoder sharpens theirs."""
    return torch.sigmoid(internals.LOGIT_SCALE * torch.logit(code, eps=1e-3))


@contextlib.contextmanager
def starting_from(poses: Tensor) -> Iterator[None]:
    """Let the search start from whitened poses (B, J, s, N).

    MONKEYPATCH, the only one here: the search has no parameter for its starts.
    """
    usual = internals.starts
    internals.starts = lambda *_: poses  # type: ignore[assignment]
    try:
        yield
    finally:
        internals.starts = usual


def search(
    searched: Searched,
    x: Tensor,
    k: int,
    log_odds: Tensor | None = None,
    compose: Compose = maximum,
    start: Callable[[Tensor], Tensor] | None = None,
) -> Explanation:
    """Explain images (B, C, H, W) by k objects each.

    log_odds are those of a recognition network, if there is one; `start` maps images to the poses to start from.
    """
    decoders = (searched.linear, searched.decode)
    parts = []
    for rows in torch.arange(len(x)).split(CHUNK):
        images = x[rows]
        odds = None if log_odds is None else log_odds[rows]
        starts = contextlib.nullcontext() if start is None else starting_from(start(images))
        with starts:
            steps = internals.search_steps(decoders, images, searched.shape, k, compose, log_odds=odds)
            sets = internals.last(steps)
        parts.append(internals.best_of(sets, maximum, k))
    return Explanation(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def fit_poses(searched: Searched, x: Tensor, capsule: Tensor) -> Explanation:
    """Explain images by given capsules (B, k): only the poses are searched."""
    n, k = capsule.shape
    weights = internals.Search(excess=1.0)
    alone = internals.propose(searched.linear, x, searched.shape, weights)
    # Proposals are sorted by capsule; the first of each capsule started at its mean.
    pose = alone.pose[:, :: weights.starts, 0][torch.arange(n)[:, None, None], capsule[:, None]]

    def likelihood(objects: Tensor) -> Tensor:
        return -internals.misfit(objects.amax(2), x[:, None], weights)

    for decode in (searched.linear, searched.decode):
        sets = fit(decode, capsule[:, None], pose, likelihood)
        pose = sets.pose
    return internals.best_of(sets, maximum, k)


def fit(decode: Decode, capsule: Tensor, pose: Tensor, likelihood: Callable[[Tensor], Tensor]) -> Sets:
    """Poses (B, s, k, N) of sets of capsules that maximise likelihood(objects) - |pose|^2 / 4."""
    return internals.last(internals.fit(decode, capsule, pose, likelihood, FIT_STEPS, FIT_RATE))


def best_set(sets: Sets) -> tuple[Tensor, Tensor]:
    """Capsules (B, k) and poses (B, k, N) of the best set of each image."""
    ordered = internals.best_first(sets)
    return ordered.capsule[:, 0], ordered.pose[:, 0]


def owners(objects: Tensor) -> Tensor:
    """How much each of the objects (B, k, C, H, W) accounts for each pixel, if they are composed by the maximum."""
    return internals.responsibilities(objects, maximum)


def owners_of_sum(objects: Tensor) -> Tensor:
    """The same if the objects are added."""
    return internals.responsibilities(objects, internals.total)


def soft_maximum(objects: Tensor) -> Tensor:
    """The maximum with every pixel shared between the objects: routing weights in the middle of the search."""
    return (owners(objects)[:, :, None] * objects).sum(1)
