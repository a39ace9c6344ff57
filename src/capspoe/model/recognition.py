"""A recognition network: which capsules explain an image of several objects, in one pass.

It is trained without labels (`capspoe.training.recognition`) and only proposes: its log-odds are added to the
objective of the search of `explain`.
"""

from jaxtyping import Float, Int
from torch import Tensor, nn

CHANNELS = (32, 64, 128)


class Recognition(nn.Module):
    """Three convolutions, each of half the resolution, and a linear map to the log-odds of every capsule."""

    def __init__(self, image: tuple[int, int, int], capsules: int) -> None:
        super().__init__()
        height, width, before = image
        layers: list[nn.Module] = []
        for channels, kernel in zip(CHANNELS, (5, 3, 3), strict=True):
            layers += [nn.Conv2d(before, channels, kernel, 2, kernel // 2), nn.BatchNorm2d(channels), nn.ReLU()]
            height, width, before = -(-height // 2), -(-width // 2), channels
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(before * height * width, capsules))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B J"]:
        return self.layers(images)


def support(log_odds: Float[Tensor, "B J"], capsule: Int[Tensor, "B s k"]) -> Float[Tensor, "B s"]:
    """Sum of the log-odds of the capsules of each set."""
    return log_odds.gather(1, capsule.flatten(1)).view(capsule.shape).sum(-1)
