"""The convolutional autoencoder whose code the capsules are built on (section 4 of the paper)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_count
from capspoe.model.codec import NEURONS, Codec, CodecMap, from_capsules, to_capsules
from capspoe.model.noise import Noise
from capspoe.model.subpixel import SubpixelTransposed

# From the code (B, c, h, w) to twice its resolution. Each takes (channels, kernel of the encoder, sides wanted).
Sides = tuple[int, int]
Upsampling = Callable[[int, int, Sides], nn.ConvTranspose2d]

# The loss of each image, (B,), from the logits of its pixels and the image.
ImageLoss = Callable[[Float[Tensor, "B C H W"], Float[Tensor, "B C H W"]], Float[Tensor, " B"]]


def mirrored(channels: int, kernel: int, sides: Sides) -> nn.ConvTranspose2d:
    """The transpose of the encoder's convolution, as in the paper."""
    spare = ((sides[0] - kernel) % 2, (sides[1] - kernel) % 2)
    return nn.ConvTranspose2d(channels, channels, kernel, stride=2, output_padding=spare)


class EvenUpsampling(nn.ConvTranspose2d):
    """A transposed convolution with stride 2 and a kernel with even sides.

    With an odd kernel, even and odd pixels are sums of different numbers of weights, and images can show a grid
    (Odena et al. 2016). An even one treats all pixels alike, and reaches the last row and column, which the mirrored
    convolution leaves to its bias.
    """

    def __init__(self, channels: int, kernel: int, sides: Sides) -> None:
        spare = max((side - kernel) % 2 for side in sides)
        even = 2 * -(-(kernel + spare) // 2)
        super().__init__(channels, channels, even, stride=2)
        self.sides = sides

    def forward(self, code: Float[Tensor, "B c h w"], output_size: Any = None) -> Float[Tensor, "B c H W"]:
        height, width = self.sides
        return super().forward(code, output_size)[..., :height, :width]


UPSAMPLINGS: dict[str, Upsampling] = {"even": EvenUpsampling, "mirrored": mirrored}


def cross_entropy(logits: Float[Tensor, "B C H W"], images: Float[Tensor, "B C H W"]) -> Float[Tensor, " B"]:
    """The cross-entropy of the pixels, averaged over them, as in the paper."""
    return F.binary_cross_entropy_with_logits(logits, images, reduction="none").mean((1, 2, 3))


@dataclass(frozen=True)
class EdgeLoss:
    """The cross-entropy, plus the mean absolute error of differences between neighbouring pixels.

    The cross-entropy alone is content with a blur. Differences are what makes an image sharp (Mathieu et al. 2016).
    """

    weight: float = 1.0

    def __call__(self, logits: Float[Tensor, "B C H W"], images: Float[Tensor, "B C H W"]) -> Float[Tensor, " B"]:
        error = torch.sigmoid(logits) - images
        rows = error.diff(dim=2).abs().mean((1, 2, 3))
        columns = error.diff(dim=3).abs().mean((1, 2, 3))
        return cross_entropy(logits, images) + self.weight * (rows + columns)


class ConvAutoencoder(Codec):
    """Two convolutions down, two up, any image size and channel count.

    conv 9x9, LeakyReLU, conv 9x9 stride 2, sigmoid: the code, in (0, 1) to match the energy model's neurons.
    The decoder goes the same way back with LeakyReLU and sigmoid. 28x28 images give a code of 6x6 positions.

    Parameters
    ----------
    image : (height, width, colours)
    channels : of each convolution
    dropout : probability with which a number of the code is dropped in training
    code_noise : standard deviation of the normal noise that is added before the code's sigmoid in training; it drives
        the code toward 0 and 1 (Salakhutdinov and Hinton 2009)
    upsampling : the first layer of the decoder: `EvenUpsampling`, or `mirrored`, the paper's
    image_loss : `EdgeLoss`, or `cross_entropy`, the paper's
    seed : of the initial weights
    """

    def __init__(
        self,
        image: tuple[int, int, int] = (28, 28, 1),
        channels: int = 128,
        dropout: float = 0.1,
        code_noise: float = 1.0,
        upsampling: Upsampling = EvenUpsampling,
        image_loss: ImageLoss = EdgeLoss(),  # noqa: B008
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
        self.image = image
        self.channels = channels
        self.kernel = kernel
        self.code_shape = (channels, h, w)
        self.grid = (h, w)
        self.capsules = (h * w * channels // NEURONS, NEURONS)
        self.dropout = dropout
        self.code_noise = code_noise
        self.image_loss = image_loss
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.down_1 = nn.Conv2d(colours, channels, kernel)
            self.down_2 = nn.Conv2d(channels, channels, kernel, stride=2)
            self.up_1 = upsampling(channels, kernel, middle)
            self.up_2 = SubpixelTransposed(channels, colours, kernel)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

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
        """The loss of each image when it is decoded from its noisy code."""
        logits = self.code_logits(images)
        if self.code_noise:
            logits = logits + self.code_noise * noise.normal(0, *logits.shape[1:])
        code = torch.sigmoid(logits)
        if self.dropout:
            kept = noise.uniform(1, *code.shape[1:]) >= self.dropout
            code = code * kept / (1 - self.dropout)
        return self.image_loss(self.image_logits(code), images)

    def maps(self) -> list[CodecMap]:
        height, width, colours = self.image
        channels, h, w = self.code_shape
        k = self.kernel
        up = self.up_1.weight.shape[-1]
        features = CodecMap(
            "features",
            (height - k + 1, width - k + 1, channels),
            (f"convolution {k}x{k}", f"[{k}, {k}, {colours}, {channels}]", "LeakyReLU"),
            (f"transposed {k}x{k}", "sigmoid"),
            (count_parameters(self.down_1), count_parameters(self.up_2)),
        )
        code = CodecMap(
            "code",
            (h, w, channels),
            (f"convolution {k}x{k} / 2", f"[{k}, {k}, {channels}, {channels}]", "sigmoid"),
            (f"transposed {up}x{up} / 2", "LeakyReLU"),
            (count_parameters(self.down_2), count_parameters(self.up_1)),
        )
        return [features, code]


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
