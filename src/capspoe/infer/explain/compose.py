"""Compositions: how several objects make up one image, and which object each pixel belongs to.

A composition is a class with the methods of `Composition`, and a name in `COMPOSITIONS` and in config.py. Objects are
(R, k, C, H, W) in [0, 1], with light ink.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F


class Composition(ABC):
    """How objects make up an image."""

    ordered: ClassVar[bool] = False  # whether the same objects in another order make another image

    @abstractmethod
    def compose(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
        """The image that objects make together."""

    @abstractmethod
    def responsibilities(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R k H W"]:
        """How much each object accounts for each pixel: routing weights over the upper capsules, which sum to 1."""

    def order(self, objects: Float[Tensor, "R k C H W"]) -> Int[Tensor, "R k"]:
        """The order in which objects are listed: as they are where that matters, otherwise the brightest first."""
        if self.ordered:
            return torch.arange(objects.shape[1], device=objects.device).expand(objects.shape[:2])
        return objects.flatten(2).sum(-1).argsort(1, descending=True)

    def arrangements(self, objects: int, k: int) -> Iterator[tuple[int, ...]]:
        """Every way to make an image of k of several objects."""
        if self.ordered:
            return itertools.permutations(range(objects), k)
        return itertools.combinations(range(objects), k)

    def most_objects(self, k: int, limit: int) -> int:
        """The largest number of objects, and at least k, that has at most `limit` arrangements of k."""
        count = math.perm if self.ordered else math.comb
        objects = k
        while count(objects + 1, k) <= limit:
            objects += 1
        return objects


@dataclass(frozen=True)
class Maximum(Composition):
    """Strokes written over each other: each pixel shows the brightest."""

    sharpness: float = 20.0  # of the softmax that shares a pixel between the objects

    def compose(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
        return objects.amax(1)

    def responsibilities(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R k H W"]:
        brightness = objects.mean(2)
        # The neighbours of a pixel have a say, so that no pixel changes hands within a stroke.
        smooth = (brightness + F.avg_pool2d(brightness, 3, 1, 1)) / 2
        return torch.softmax(self.sharpness * smooth, 1)


@dataclass(frozen=True)
class Sum(Composition):
    """Light that adds up."""

    def compose(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
        return objects.sum(1).clamp_max(1)

    def responsibilities(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R k H W"]:
        brightness = objects.mean(2)
        return brightness / brightness.sum(1, keepdim=True).clamp_min(1e-6)


@dataclass(frozen=True)
class Occlusion(Composition):
    """Opaque objects: the first is in front, and the last hides nothing."""

    ordered = True
    opaque: float = 0.1  # brightness from which a pixel hides what is behind it
    sharpness: float = 40.0  # of that edge

    def visibility(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R k 1 H W"]:
        """How much of each object is seen, which sums to 1: the ground belongs to the last."""
        brightness = objects.amax(2, keepdim=True)
        alpha = torch.sigmoid(self.sharpness * (brightness - self.opaque))
        whole = torch.ones_like(alpha[:, :1])
        alpha = torch.cat([alpha[:, :-1], whole], 1)
        unhidden = torch.cat([whole, (1 - alpha[:, :-1]).cumprod(1)], 1)
        return alpha * unhidden

    def compose(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
        return (self.visibility(objects) * objects).sum(1)

    def responsibilities(self, objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R k H W"]:
        return self.visibility(objects)[:, :, 0]


MAXIMUM = Maximum()
COMPOSITIONS: dict[str, Composition] = {"maximum": MAXIMUM, "sum": Sum(), "occlusion": Occlusion()}
