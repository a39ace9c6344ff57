"""Capsules on your own encoder: any PyTorch module with `encode` and `decode`, here two layers for 28x28 digits.

Run: python examples/own_encoder.py [--quick]
"""

import sys

import torch
from torch import Tensor, nn

import capspoe
import capspoe.data


class Encoder(nn.Module):
    """Each patch of 4x4 pixels becomes 16 numbers: two lower capsules of 8 neurons at each of 7x7 positions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(1, 16, 4, stride=4)
        self.up = nn.ConvTranspose2d(16, 1, 4, stride=4)

    def encode(self, images: Tensor) -> Tensor:
        return torch.sigmoid(self.down(images))

    def decode(self, code: Tensor) -> Tensor:
        return torch.sigmoid(self.up(code))


quick = "--quick" in sys.argv
torch.manual_seed(0)
pixels = capspoe.data.load("digits").pixels[: 300 if quick else None]
layer = capspoe.CapsuleLayer(lower=(7 * 7 * 2, 8), upper=(12, 16))
model = capspoe.CapsulePoE(Encoder(), [layer], image=(28, 28, 1))
capspoe.fit(model, pixels, batch_size=64, min_steps=100 if quick else 1400)

images, capsule = model.sample(200, seed=1)
print(
    f"{images.shape} samples of mean brightness {images.mean():.2f}; that of the digits is {pixels.mean() / 255:.2f}"
)
pair = pixels[:2].max(0)  # two digits, one over the other
explanation = model.explain(pair, k=2)
error = ((explanation.image - pair / 255) ** 2).mean()
print(f"capsules {explanation.capsule[0].tolist()} explain the pair with a mean squared error of {error:.3f}")
