"""Capsules made of the pixels themselves: small parts to route, and likelihoods of images."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_count
from capspoe.model.codec import Codec

THRESHOLD = 0.5  # pixels above it are 1


class Pixels(Codec):
    """Patches of binarised pixels: each patch x patch square, with all its colours, is a lower capsule.

    There is nothing to learn, and nothing is lost but the grey levels. So the likelihood of a code is that of the
    binarised image.
    """

    def __init__(self, image: tuple[int, int, int] = (28, 28, 1), patch: int = 4) -> None:
        super().__init__()
        height, width, colours = image
        check_count("patch", patch)
        check_count("image colours", colours)
        if height % patch or width % patch:
            raise InputError(f"images of {height}x{width} cannot be divided into patches of {patch}x{patch}")
        self.image = image
        self.patch = patch
        self.grid = (height // patch, width // patch)
        self.capsules = (self.grid[0] * self.grid[1], colours * patch**2)

    def encode(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B I M"]:
        binary = (images > THRESHOLD).to(images)
        return F.unfold(binary, self.patch, stride=self.patch).transpose(1, 2)

    def decode(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B C H W"]:
        """The probability that each pixel is 1."""
        return F.fold(x.transpose(1, 2), self.image[:2], self.patch, stride=self.patch)

    def log_likelihood(self, images: Float[Tensor, "B C H W"], x: Float[Tensor, "B I M"]) -> Float[Tensor, " B"]:
        """0: the code is the binarised image."""
        return images.new_zeros(len(images))
