r"""A recognition network: which capsules explain an image of one object or several, in one pass.

It is a conditional Boltzmann machine over the capsules. A set S of capsules is on with the probability

.. math:: \log P(S \mid \text{image}) = \sum_{j \in S} \ell_j + \sum_{i < j \in S} A_{ij} - \log Z

where a convolutional network computes the log-odds l from the image, and the couplings A are the same for all images.
They say which capsules stand in for each other: two capsules of the same digit repel, so that a 4 of which it is not
known which capsule it belongs to is not taken for two 4s.

It learns the gate's targets without labels (`capspoe.training.recognition`) and has two uses. For an image of one
object it is an amortised gate, which keeps what its targets know: the energy's own evidence is quadratic in the code,
and keeps less. In the search of `explain` its log-probabilities are added to the objective.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

CONVOLUTIONS = ((32, 5, 2), (64, 3, 2), (64, 3, 1), (128, 3, 2), (48, 1, 1))  # channels, kernel, stride
HIDDEN = 128
COUNTED = 20  # capsules, the likeliest of an image, whose sets say how many objects it has


class Recognised(NamedTuple):
    """What the recognition network says of B images; see the equation above."""

    log_odds: Float[Tensor, "B J"]
    couplings: Float[Tensor, "J J"]

    def support(self, capsule: Int[Tensor, "B s k"]) -> Float[Tensor, "B s"]:
        """log P of each set of k different capsules, apart from the constant log Z."""
        alone = self.log_odds.gather(1, capsule.flatten(1)).view(capsule.shape).sum(-1)
        coupled = self.couplings[capsule[..., :, None], capsule[..., None, :]].sum((-2, -1))
        return alone + coupled / 2  # every pair was counted twice

    def count_probability(self, most: int) -> Float[Tensor, "B K"]:
        """P(k capsules are on | image) for k from 1 to `most`, over the sets of each image's likeliest capsules."""
        likeliest = self.log_odds.topk(min(COUNTED, self.log_odds.shape[1])).indices
        number = torch.arange(likeliest.shape[1], device=likeliest.device)
        totals = []
        for k in range(1, most + 1):
            sets = torch.combinations(number, k)
            totals.append(torch.logsumexp(self.support(likeliest[:, sets]), 1))
        return torch.softmax(torch.stack(totals, 1), 1)

    def of(self, rows: slice) -> "Recognised":
        """The same of some of the images."""
        return Recognised(self.log_odds[rows], self.couplings)

    def reordered(self, capsule: Int[Tensor, " K"]) -> "Recognised":
        """The same with other numbers: number k is what this capsule was."""
        return Recognised(self.log_odds[:, capsule], self.couplings[capsule][:, capsule])


class Recognition(nn.Module):
    """Five convolutions, down to an eighth of the resolution, and a hidden layer, to the log-odds of every capsule.

    Attributes
    ----------
    dark : 1 if the images have dark ink on a light ground, else 0; the network itself sees light ink
    """

    dark: Tensor

    def __init__(self, image: tuple[int, int, int], capsules: int) -> None:
        super().__init__()
        height, width, before = image
        layers: list[nn.Module] = []
        for channels, kernel, stride in CONVOLUTIONS:
            convolution = nn.Conv2d(before, channels, kernel, stride, kernel // 2, bias=False)
            layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
            height = -(-height // stride)
            width = -(-width // stride)
            before = channels
        layers += [nn.Flatten(), nn.Linear(before * height * width, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(HIDDEN, capsules))
        self.half_couplings = nn.Parameter(torch.zeros(capsules, capsules))  # only those above the diagonal count
        self.register_buffer("dark", torch.zeros(()))

    @property
    def couplings(self) -> Float[Tensor, "J J"]:
        """A, symmetric, with zeros on the diagonal."""
        above = self.half_couplings.triu(1)
        return above + above.T

    def forward(self, ink: Float[Tensor, "B C H W"]) -> Recognised:
        """The log-odds of each capsule, for images with light ink, and the couplings."""
        return Recognised(self.layers(ink), self.couplings)

    def on_probability(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B J"]:
        """P(capsule j is on | image), given that exactly one is: then no coupling counts."""
        ink = torch.where(self.dark > 0, 1 - images, images)
        return torch.softmax(self.layers(ink), -1)
