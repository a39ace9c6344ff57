r"""What the search maximises.

Capsules :math:`j_m` with whitened poses :math:`v_m` decode to objects, whose composition should be the image I:

.. math:: -\lambda \sum_p \rho(r_p) - \tfrac{1}{4} \sum_m |v_m|^2 + \beta \log P(j_1, \dots, j_k \mid I),
          \qquad \rho(r) = \sqrt{r^2 + \epsilon^2} - \epsilon

where r is the composition less the image, and P the probability that a recognition network gives the set of capsules,
apart from its constant (1 without a network).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.infer.explain.compose import MAXIMUM, Composition
from capspoe.infer.explain.settings import DEFAULT, Search
from capspoe.model.recognition import Recognised

PIXELS = (-3, -2, -1)  # the axes of an image


def misfit(
    composed: Float[Tensor, "*R C H W"], images: Float[Tensor, "*R C H W"], search: Search = DEFAULT
) -> Float[Tensor, " *R"]:
    """lambda times the sum of rho(r) over the pixels, where r > 0 counts by the factor `search.excess`."""
    residual = composed - images
    error = (residual.square() + search.tolerance**2).sqrt() - search.tolerance
    error = torch.where(residual > 0, search.excess * error, error)
    return search.error_weight * error.sum(PIXELS)


def part_of(
    objects: Float[Tensor, "*R C H W"], images: Float[Tensor, "*R C H W"], search: Search = DEFAULT
) -> Float[Tensor, " *R"]:
    """How well objects explain a part of the images: they may leave ink out, but not add any."""
    covered = torch.minimum(objects, images).sum(PIXELS)
    added = (objects - images).clamp_min(0).square().sum(PIXELS)
    return search.covered_weight * covered - search.added_weight * added


@dataclass(frozen=True)
class Objective:
    """The objective for B images; s sets of k objects explain each. Images have light ink."""

    images: Float[Tensor, "B C H W"]
    composition: Composition = MAXIMUM
    search: Search = DEFAULT
    recognised: Recognised | None = None  # what a recognition network says of the images

    def part(self, objects: Float[Tensor, "B s 1 C H W"]) -> Float[Tensor, "B s"]:
        """How well each object explains a part of its image."""
        return part_of(objects[:, :, 0], self.images[:, None], self.search)

    def errors(self, objects: Float[Tensor, "B s k C H W"]) -> Float[Tensor, "B s"]:
        """The misfit of every set, composed."""
        composed = self.composition.compose(objects.flatten(0, 1)).unflatten(0, objects.shape[:2])
        return misfit(composed, self.images[:, None], self.search)

    def support(self, capsule: Int[Tensor, "B s k"]) -> Float[Tensor, "B s"]:
        """beta times the log-probability of every set of capsules; 0 without a recognition network."""
        if self.recognised is None:
            return self.images.new_zeros(capsule.shape[:2])
        return self.search.recognition_weight * self.recognised.support(capsule)

    def pose_cost(self, pose: Float[Tensor, "B s k N"]) -> Float[Tensor, "B s"]:
        """A quarter of the squared lengths of the poses."""
        return self.search.pose_weight * pose.square().sum((2, 3))
