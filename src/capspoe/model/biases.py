r"""The visible bias a: one that all capsules share, or one for each capsule.

Shapes: x (B, I, M); mu (I, M) is the centring; `on` (B,) is the capsule that is on, or None where all of them are.
"""

from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import InputError


class VisibleBias(Protocol):
    """Where the visible bias enters the energy."""

    def shape(self, capsules: int, lower: tuple[int, int]) -> tuple[int, ...]:
        """Shape of a."""
        ...

    def logits(self, a: Tensor, on: Float[Tensor, "B J"]) -> Tensor:
        """What the bias adds to the logits of x, (B, I, M) or (I, M), where capsule j is on by the weight on_j."""
        ...

    def energy(
        self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"], on: Int[Tensor, " B"] | None
    ) -> Float[Tensor, " B"]:
        """The bias's term of the energy."""
        ...

    def evidence(self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"]) -> Tensor | float:
        """What the bias adds to the log evidence of each capsule, (B, J); 0 for a bias that they share."""
        ...

    def shared_evidence(self, a: Tensor, x: Float[Tensor, "B I M"]) -> Tensor | float:
        """What a bias that the capsules share adds to the log evidence of x, (B,); 0 where each has its own."""
        ...

    def gradient(
        self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"], on: Int[Tensor, " B"] | None
    ) -> Tensor:
        """Sum over the batch of -dE/da, in the shape of a."""
        ...


class SharedBias:
    """One bias for all capsules, as in Eq. 1: -a'x."""

    def shape(self, capsules: int, lower: tuple[int, int]) -> tuple[int, ...]:
        return lower

    def logits(self, a: Tensor, on: Float[Tensor, "B J"]) -> Tensor:
        return a

    def energy(
        self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"], on: Int[Tensor, " B"] | None
    ) -> Float[Tensor, " B"]:
        return -(a * x).sum((1, 2))

    def evidence(self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"]) -> float:
        return 0.0

    def shared_evidence(self, a: Tensor, x: Float[Tensor, "B I M"]) -> Tensor:
        return (a * x).sum((1, 2))

    def gradient(
        self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"], on: Int[Tensor, " B"] | None
    ) -> Tensor:
        return x.sum(0)


class OwnBias:
    """A bias a_j for each capsule, as each component of a mixture of RBMs has: -a_j'(x - mu) where j is on."""

    def shape(self, capsules: int, lower: tuple[int, int]) -> tuple[int, ...]:
        return (capsules, *lower)

    def logits(self, a: Tensor, on: Float[Tensor, "B J"]) -> Tensor:
        return torch.einsum("bj,jim->bim", on, a)

    def energy(
        self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"], on: Int[Tensor, " B"] | None
    ) -> Float[Tensor, " B"]:
        if on is None:
            raise InputError("on is needed: with the gate the energy depends on which capsule is on")
        return -(a[on] * (x - mu)).sum((1, 2))

    def evidence(self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"]) -> Tensor:
        return (x - mu).flatten(1) @ a.flatten(1).T

    def shared_evidence(self, a: Tensor, x: Float[Tensor, "B I M"]) -> float:
        return 0.0

    def gradient(
        self, a: Tensor, x: Float[Tensor, "B I M"], mu: Float[Tensor, "I M"], on: Int[Tensor, " B"] | None
    ) -> Tensor:
        assert on is not None
        return torch.zeros_like(a).index_add_(0, on, x - mu)
