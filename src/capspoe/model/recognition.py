"""A recognition network: which capsules explain an image of one object or several, in one pass.

It learns the gate's targets without labels (`capspoe.training.recognition`) and has two uses. For an image of one
object it is an amortised gate, which keeps what its targets know: the energy's own evidence is quadratic in the code,
and keeps less. In the search of `explain` its log-odds are added to the objective.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

CHANNELS = (32, 64, 128)


class Recognition(nn.Module):
    """Three convolutions, each of half the resolution, and a linear map to the log-odds of every capsule.

    Attributes
    ----------
    dark : 1 if the images have dark ink on a light ground, else 0; the network itself sees light ink
    """

    dark: Tensor

    def __init__(self, image: tuple[int, int, int], capsules: int) -> None:
        super().__init__()
        height, width, before = image
        layers: list[nn.Module] = []
        for channels, kernel in zip(CHANNELS, (5, 3, 3), strict=True):
            layers += [nn.Conv2d(before, channels, kernel, 2, kernel // 2), nn.BatchNorm2d(channels), nn.ReLU()]
            height, width, before = -(-height // 2), -(-width // 2), channels
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * height * width, capsules))
        self.register_buffer("dark", torch.zeros(()))

    def forward(self, ink: Float[Tensor, "B C H W"]) -> Float[Tensor, "B J"]:
        """The log-odds of each capsule, for images with light ink."""
        return self.layers(ink)

    def on_probability(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B J"]:
        """P(capsule j is on | image), given that exactly one is.

        The capsules' odds are independent, so that j alone is on with a probability in proportion to its odds.
        """
        ink = torch.where(self.dark > 0, 1 - images, images)
        return torch.softmax(self(ink), -1)


def support(log_odds: Float[Tensor, "B J"], capsule: Int[Tensor, "B s k"]) -> Float[Tensor, "B s"]:
    """Sum of the log-odds of the capsules of each set."""
    return log_odds.gather(1, capsule.flatten(1)).view(capsule.shape).sum(-1)
