r"""What the search maximises.

Capsules :math:`j_m` with whitened poses :math:`v_m` decode to objects, whose composition should be the image I:

.. math:: -\lambda \sum_p \rho(r_p) - \tfrac{1}{4} \sum_m |v_m|^2 + \beta \sum_m \ell_{j_m}(I),
          \qquad \rho(r) = \sqrt{r^2 + \epsilon^2} - \epsilon

where r is the composition less the image, and l_j the log-odds that a recognition network gives capsule j (0 without
one).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.infer.explain.compose import MAXIMUM, Composition
from capspoe.infer.explain.settings import DEFAULT, Search
from capspoe.model.recognition import support

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
    log_odds: Float[Tensor, "B J"] | None = None  # of each capsule, by a recognition network

    def part(self, objects: Float[Tensor, "B s 1 C H W"]) -> Float[Tensor, "B s"]:
        """How well each object explains a part of its image."""
        return part_of(objects[:, :, 0], self.images[:, None], self.search)

    def errors(self, objects: Float[Tensor, "B s k C H W"]) -> Float[Tensor, "B s"]:
        """The misfit of every set, composed."""
        composed = self.composition.compose(objects.flatten(0, 1)).unflatten(0, objects.shape[:2])
        return misfit(composed, self.images[:, None], self.search)

    def support(self, capsule: Int[Tensor, "B s k"]) -> Float[Tensor, "B s"]:
        """beta times the log-odds of the capsules of every set; 0 without a recognition network."""
        if self.log_odds is None:
            return self.images.new_zeros(capsule.shape[:2])
        return support(self.search.odds_weight * self.log_odds, capsule)

    def pose_cost(self, pose: Float[Tensor, "B s k N"]) -> Float[Tensor, "B s"]:
        """A quarter of the squared lengths of the poses."""
        return self.search.pose_weight * pose.square().sum((2, 3))
