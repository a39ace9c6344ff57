"""Capsules made of the pixels themselves: small parts to route, and likelihoods of images."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_count
from capspoe.model.codec import Codec
from capspoe.model.noise import Noise, mix64

THRESHOLD = 0.5  # pixels above it are 1
DRAW_STREAM = 0  # of random numbers


class Pixels(Codec):
    """Patches of binarised pixels: each patch x patch square, with all its colours, is a lower capsule.

    There is nothing to learn, and nothing is lost but the grey levels. So the likelihood of a code is that of the
    binarised image.

    Parameters
    ----------
    image : (height, width, colours)
    patch : side of the squares
    drawn : draw each pixel, 1 with its brightness as the probability, instead of comparing it with one half;
        published likelihoods of MNIST are of such images
    """

    code_is_image = True

    def __init__(self, image: tuple[int, int, int] = (28, 28, 1), patch: int = 4, drawn: bool = False) -> None:
        super().__init__()
        height, width, colours = image
        check_count("patch", patch)
        check_count("image colours", colours)
        if height % patch or width % patch:
            raise InputError(f"images of {height}x{width} cannot be divided into patches of {patch}x{patch}")
        self.image = image
        self.patch = patch
        self.drawn = drawn
        self.grid = (height // patch, width // patch)
        self.capsules = (self.grid[0] * self.grid[1], colours * patch**2)

    def encode(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B I M"]:
        return F.unfold(self.binary(images), self.patch, stride=self.patch).transpose(1, 2)

    def binary(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """The images as 0 and 1."""
        if not self.drawn:
            return (images > THRESHOLD).to(images)
        # The numbers are a hash of the image: it is drawn once, wherever it occurs.
        levels = (255 * images).round().to(torch.int64).flatten(1)
        position = torch.arange(levels.shape[1], device=images.device)
        key = mix64(256 * position + levels).sum(1)
        return (Noise(0, 0, key, images.dtype).uniform(DRAW_STREAM, *images.shape[1:]) < images).to(images)

    def decode(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B C H W"]:
        """The probability that each pixel is 1."""
        return F.fold(x.transpose(1, 2), self.image[:2], self.patch, stride=self.patch)

    def log_likelihood(self, images: Float[Tensor, "B C H W"], x: Float[Tensor, "B I M"]) -> Float[Tensor, " B"]:
        """0: the code is the binarised image."""
        return images.new_zeros(len(images))
