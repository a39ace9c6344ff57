"""The convolutional autoencoder whose code the capsules are built on (section 4 of the paper)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_count
from capspoe.model.noise import Noise
from capspoe.model.subpixel import SubpixelTransposed

NEURONS = 8  # channels in a lower capsule


def to_capsules(code: Float[Tensor, "B C h w"]) -> Float[Tensor, "B I 8"]:
    """Every eight neighbouring channels at one position form a capsule: i = (row * w + column) * C / 8 + group."""
    B, C, h, w = code.shape
    return code.permute(0, 2, 3, 1).reshape(B, h * w * C // NEURONS, NEURONS)


def from_capsules(x: Float[Tensor, "B I 8"], code_shape: tuple[int, int, int]) -> Float[Tensor, "B C h w"]:
    """The inverse of `to_capsules`."""
    C, h, w = code_shape
    return x.reshape(x.shape[0], h, w, C).permute(0, 3, 1, 2)


class ConvAutoencoder(nn.Module):
    """Two convolutions down, two up, any image size and channel count.

    conv 9x9, LeakyReLU, conv 9x9 stride 2, sigmoid: the code, in (0, 1) to match the energy model's neurons.
    The decoder mirrors it with LeakyReLU and sigmoid. 28x28 images give a code of 6x6 positions.

    In training, normal noise of `code_noise` is added before the code's sigmoid, which drives the code toward
    0 and 1 (Salakhutdinov and Hinton 2009), and `dropout` is applied to the code.
    """

    has_images = True

    def __init__(
        self,
        image: tuple[int, int, int] = (28, 28, 1),
        channels: int = 128,
        dropout: float = 0.1,
        code_noise: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        height, width, colours = image
        check_count("channels", channels)
        check_count("image colours", colours)
        if channels % NEURONS:
            raise InputError(f"channels must be a multiple of {NEURONS}, not {channels}")
        if not 0 <= dropout < 1 or not code_noise >= 0:
            raise InputError("dropout must be in [0, 1) and code_noise not negative")
        if min(height, width) < 5:
            raise InputError(f"images of {height}x{width} are too small: at least 5x5 is needed; resize them")
        kernel = min(9, (min(height, width) - 1) // 2)  # the paper's 9, or less to keep 2x2 positions in the code
        middle = (height - kernel + 1, width - kernel + 1)
        h, w = ((side - kernel) // 2 + 1 for side in middle)
        spare = (middle[0] - ((h - 1) * 2 + kernel), middle[1] - ((w - 1) * 2 + kernel))
        self.image, self.channels, self.kernel = image, channels, kernel
        self.code_shape = (channels, h, w)
        self.dropout, self.code_noise = dropout, code_noise
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.down_1 = nn.Conv2d(colours, channels, kernel)
            self.down_2 = nn.Conv2d(channels, channels, kernel, stride=2)
            self.up_1 = nn.ConvTranspose2d(channels, channels, kernel, stride=2, output_padding=spare)
            self.up_2 = SubpixelTransposed(channels, colours, kernel)

    @property
    def capsules(self) -> tuple[int, int]:
        """(number of lower capsules, neurons in each)."""
        C, h, w = self.code_shape
        return (h * w * C // NEURONS, NEURONS)

    def code_logits(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B c h w"]:
        return self.down_2(F.leaky_relu(self.down_1(images), inplace=True))

    def image_logits(self, code: Float[Tensor, "B c h w"]) -> Float[Tensor, "B C H W"]:
        return self.up_2(F.leaky_relu(self.up_1(code), inplace=True))

    def encode(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B I 8"]:
        """Images with values in [0, 1] to lower capsules."""
        return to_capsules(torch.sigmoid(self.code_logits(images)))

    def decode(self, x: Float[Tensor, "B I 8"]) -> Float[Tensor, "B C H W"]:
        """Lower capsules to images."""
        return torch.sigmoid(self.image_logits(from_capsules(x, self.code_shape)))

    def loss(self, images: Float[Tensor, "B C H W"], noise: Noise) -> Float[Tensor, " B"]:
        """Cross-entropy of each image's pixels given its noisy code, averaged over the pixels."""
        logits = self.code_logits(images)
        if self.code_noise:
            logits = logits + self.code_noise * noise.normal(0, *logits.shape[1:])
        code = torch.sigmoid(logits)
        if self.dropout:
            kept = noise.uniform(1, *code.shape[1:]) >= self.dropout
            code = code * kept / (1 - self.dropout)
        logits = self.image_logits(code)
        return F.binary_cross_entropy_with_logits(logits, images, reduction="none").mean((1, 2, 3))
