"""Codecs: from images to lower capsules and back.

The capsule layers know nothing of images. A codec tells them how many lower capsules of how many neurons there are,
encodes images as numbers in [0, 1], decodes them, and has a loss if it learns.

`ConvAutoencoder` is the paper's. `Pixels` takes the pixels themselves, `FeatureCode` the columns of a table.
`as_codec` turns any `nn.Module` with `encode` and `decode` into a codec.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.noise import Noise

NEURONS = 8  # of a lower capsule, unless the codec says otherwise
MARGIN = 1e-6  # probabilities are kept this far from 0 and 1 in a cross-entropy


class Codec(nn.Module):
    """The base class of codecs, with defaults for everything but `encode` and `decode`.

    Attributes
    ----------
    image : (height, width, colours) of the images
    capsules : (number of lower capsules, neurons in each)
    grid : (rows, columns) of the positions that the capsules belong to, row by row, with the same number of capsules
        at each; None if they have no place in the image
    has_images : whether `decode` returns images that people can look at
    code_is_image : whether the code is the image itself, in 0 and 1: likelihoods of codes are those of images
    """

    image: tuple[int, int, int]
    capsules: tuple[int, int]
    grid: tuple[int, int] | None = None
    has_images: bool = True
    code_is_image: bool = False

    def encode(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B I M"]:
        """Images with values in [0, 1] to lower capsules with values in [0, 1]."""
        raise InputError(f"{type(self).__name__} has no encoder; train and use its network with codes")

    def decode(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B C H W"]:
        """Lower capsules to images."""
        raise InputError(f"{type(self).__name__} has no decoder; its network cannot make images")

    @property
    def learns(self) -> bool:
        """Whether it must be trained before the capsules."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def loss(self, images: Float[Tensor, "B C H W"], noise: Noise) -> Float[Tensor, " B"]:
        """The loss: the cross-entropy of each image's pixels given its code, averaged over the pixels."""
        decoded = self.decode(self.encode(images)).clamp(MARGIN, 1 - MARGIN)
        return F.binary_cross_entropy(decoded, images, reduction="none").mean((1, 2, 3))

    def log_likelihood(self, images: Float[Tensor, "B C H W"], x: Float[Tensor, "B I M"]) -> Float[Tensor, " B"]:
        """log P(image | code) in nats; 0 for a codec whose code is the image."""
        decoded = self.decode(x).clamp(MARGIN, 1 - MARGIN)
        return -F.binary_cross_entropy(decoded, images, reduction="none").sum((1, 2, 3))

    def maps(self) -> list["CodecMap"]:
        """The maps between the image and the lower capsules, for the figure of the architecture."""
        return []


class CodecMap(NamedTuple):
    """A map between the image and the lower capsules, as a figure shows it."""

    name: str
    shape: tuple[int, int, int]  # (height, width, channels)
    up: tuple[str, ...]  # what leads here
    down: tuple[str, ...]  # what leads back
    parameters: tuple[int, int]  # of the way here, and of the way back


def to_capsules(code: Float[Tensor, "B C h w"], neurons: int = NEURONS) -> Float[Tensor, "B I M"]:
    """Neighbouring channels at one position form a capsule: i = (row * w + column) * C / M + group."""
    B, C, h, w = code.shape
    return code.permute(0, 2, 3, 1).reshape(B, h * w * C // neurons, neurons)


def from_capsules(x: Float[Tensor, "B I M"], code_shape: tuple[int, int, int]) -> Float[Tensor, "B C h w"]:
    """The inverse of `to_capsules`."""
    C, h, w = code_shape
    return x.reshape(x.shape[0], h, w, C).permute(0, 3, 1, 2)


class ModuleCodec(Codec):
    """Any `nn.Module` with `encode` and `decode`, as a codec.

    Its code may be a map (B, C, h, w), of which every eight neighbouring channels form a capsule, a vector (B, D), of
    which every eight neighbouring numbers do, or capsules (B, I, M) as they are. It must lie in [0, 1]: end the
    encoder with a sigmoid. If the module has a method `loss(images)` with one number for each image, it learns by
    that, otherwise by the cross-entropy of the pixels.
    """

    def __init__(self, module: nn.Module, image: tuple[int, int, int]) -> None:
        super().__init__()
        for name in ("encode", "decode"):
            if not callable(getattr(module, name, None)):
                raise InputError(f"{type(module).__name__} has no method `{name}`: a codec needs encode and decode")
        self.module = module
        self.image = image
        height, width, colours = image
        device = next((p.device for p in module.parameters()), torch.device("cpu"))
        with torch.no_grad():
            code = self._module.encode(torch.full((2, colours, height, width), 0.5, device=device))
            decoded = self._module.decode(code)
        if not bool(((code >= 0) & (code <= 1)).all()):
            raise InputError("the code must lie in [0, 1], and not be NaN; end the encoder with a sigmoid")
        if decoded.shape[1:] != (colours, height, width):
            raise InputError(f"decode gives images of {tuple(decoded.shape[1:])}, not {(colours, height, width)}")
        self.code_shape = tuple(code.shape[1:])
        if len(self.code_shape) == 3:
            self.grid = (self.code_shape[1], self.code_shape[2])
        self.capsules = self._capsules()

    @property
    def _module(self) -> Any:
        return self.module

    def _capsules(self) -> tuple[int, int]:
        if len(self.code_shape) == 2:
            return (self.code_shape[0], self.code_shape[1])
        neighbours = self.code_shape[0]  # channels at a position, or all numbers of a vector
        if len(self.code_shape) not in (1, 3) or neighbours % NEURONS:
            raise InputError(
                f"a code of shape {self.code_shape} cannot be divided into capsules of {NEURONS}; make the number of "
                f"channels a multiple of {NEURONS}, or let encode return capsules (B, I, M)"
            )
        return (torch.Size(self.code_shape).numel() // NEURONS, NEURONS)

    def encode(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B I M"]:
        code = self._module.encode(images)
        if len(self.code_shape) == 3:
            return to_capsules(code)
        return code.reshape(len(code), *self.capsules)

    def decode(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B C H W"]:
        if len(self.code_shape) == 3:
            C, h, w = self.code_shape
            return self._module.decode(from_capsules(x, (C, h, w)))
        return self._module.decode(x.reshape(len(x), *self.code_shape))

    def loss(self, images: Float[Tensor, "B C H W"], noise: Noise) -> Float[Tensor, " B"]:
        if callable(getattr(self.module, "loss", None)):
            return self._module.loss(images)
        return super().loss(images, noise)


def as_codec(module: nn.Module, image: tuple[int, int, int] | None = None) -> Codec:
    """The module itself if it is a codec, or wrapped as one for images (height, width, colours)."""
    if isinstance(module, Codec):
        return module
    if image is None:
        raise InputError(f"image=(height, width, colours) is needed to make a codec of {type(module).__name__}")
    return ModuleCodec(module, image)
