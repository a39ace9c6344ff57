"""The convolutional autoencoder whose code the capsules are built on (section 4 of the paper)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_count
from capspoe.model.codec import NEURONS, Codec, CodecMap, from_capsules, to_capsules
from capspoe.model.noise import Noise
from capspoe.model.subpixel import SubpixelTransposed


class ConvAutoencoder(Codec):
    """Two convolutions down, two up, any image size and channel count.

    conv 9x9, LeakyReLU, conv 9x9 stride 2, sigmoid: the code, in (0, 1) to match the energy model's neurons.
    The decoder mirrors it with LeakyReLU and sigmoid. 28x28 images give a code of 6x6 positions.

    In training, normal noise with standard deviation `code_noise` is added before the code's sigmoid. It drives the
    code toward 0 and 1 (Salakhutdinov and Hinton 2009), and `dropout` is applied to the code.
    """

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
        self.image = image
        self.channels = channels
        self.kernel = kernel
        self.code_shape = (channels, h, w)
        self.grid = (h, w)
        self.capsules = (h * w * channels // NEURONS, NEURONS)
        self.dropout = dropout
        self.code_noise = code_noise
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.down_1 = nn.Conv2d(colours, channels, kernel)
            self.down_2 = nn.Conv2d(channels, channels, kernel, stride=2)
            self.up_1 = nn.ConvTranspose2d(channels, channels, kernel, stride=2, output_padding=spare)
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

    def maps(self) -> list[CodecMap]:
        height, width, colours = self.image
        channels, h, w = self.code_shape
        k = self.kernel
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
            (f"transposed {k}x{k} / 2", "LeakyReLU"),
            (count_parameters(self.down_2), count_parameters(self.up_1)),
        )
        return [features, code]


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
