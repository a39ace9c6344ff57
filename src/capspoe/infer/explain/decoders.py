"""Decoders: from capsules and their whitened poses to images.

The search needs nothing else of a model, so that other models can take the capsules' place.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.infer.cache import cached_on
from capspoe.infer.explain.settings import Decode, Search
from capspoe.model.gates import place
from capspoe.model.network import Network
from capspoe.model.noise import Noise


@dataclass(frozen=True)
class Decoders:
    """Two decoders of the same poses, and the shape of these: J capsules with N numbers each."""

    linear: Decode  # cheap, to search with
    exact: Decode  # the model's own, to refine with
    shape: tuple[int, int]

    def then(self, change: Callable[[Tensor], Tensor]) -> "Decoders":
        """Decoders whose images are changed afterwards."""
        return Decoders(
            lambda capsule, white: change(self.linear(capsule, white)),
            lambda capsule, white: change(self.exact(capsule, white)),
            self.shape,
        )

    def shifted(self, shift: float) -> "Decoders":
        """Decoders of two more numbers that move the object; see `shifted`."""
        J, N = self.shape
        return Decoders(shifted(self.linear, shift), shifted(self.exact, shift), (J, N + 2))


@dataclass(frozen=True)
class LinearDecoder:
    """For each capsule the logits of the pixels as an affine function of the pose; the offset comes last."""

    affine: Float[Tensor, "J N+1 V"]
    size: tuple[int, ...]  # of an image

    def __call__(self, capsule: Int[Tensor, " R"], white: Float[Tensor, "R N"]) -> Float[Tensor, "R C H W"]:
        pose_and_one = torch.cat([white, torch.ones_like(white[:, :1])], 1)
        # One product for all capsules, with zeros for those that are off, is faster than a batch of small ones.
        logits = place(pose_and_one, capsule, len(self.affine)).flatten(1) @ self.affine.flatten(0, 1)
        return torch.sigmoid(logits).unflatten(1, self.size)


@torch.no_grad()
def linear_decoder(
    decode: Decode,
    shape: tuple[int, int],
    device: torch.device | None = None,
    samples: int = 200,
    ridge: float = 0.1,
) -> LinearDecoder:
    """The linear decoder that is nearest to another: ridge regression on samples of the pose, in each capsule.

    It is a hundred times cheaper, and reproduces nine tenths of the variance of MNIST's pixels.
    """
    J, N = shape
    pose = Noise.for_batch(samples).normal(0, N)
    pose_and_one = torch.cat([pose, torch.ones(samples, 1)], 1).to(device)
    gram = pose_and_one.T @ pose_and_one + ridge * torch.eye(N + 1, device=device)
    maps = []
    for j in range(J):
        images = decode(torch.full((samples,), j, device=device), pose_and_one[:, :N])
        logits = torch.logit(images, eps=1e-3).flatten(1)
        maps.append(torch.linalg.solve(gram, pose_and_one.T @ logits))
    return LinearDecoder(torch.stack(maps), tuple(images.shape[1:]))


def capsule_decoder(network: Network, logit_scale: float = Search.logit_scale) -> Decode:
    """The network's own decoder, with one capsule on."""
    if not network.codec.has_images:
        raise InputError("a network of plain features has no images")

    def decode(capsule: Int[Tensor, " R"], white: Float[Tensor, "R N"]) -> Float[Tensor, "R C H W"]:
        return network.decode_pose(capsule, network.prior.from_white(capsule, white), logit_scale)

    return decode


def linear_decoder_of(network: Network, logit_scale: float = Search.logit_scale) -> LinearDecoder:
    """The linear decoder of a network; it is kept until the network changes."""
    decode = capsule_decoder(network, logit_scale)

    def make() -> LinearDecoder:
        return linear_decoder(decode, network.top.upper, network.device)

    return cached_on(network, ("linear decoder", logit_scale), make)


def decoders_of(network: Network, logit_scale: float = Search.logit_scale) -> Decoders:
    """The decoders of a network."""
    return Decoders(
        linear_decoder_of(network, logit_scale),
        capsule_decoder(network, logit_scale),
        network.top.upper,
    )


def shifted(decode: Decode, shift: float) -> Decode:
    """A decoder of two more numbers: how far to move the object right and down, in units of shift / 2 pixels."""

    def decode_shifted(capsule: Int[Tensor, " R"], white: Float[Tensor, "R N"]) -> Float[Tensor, "R C H W"]:
        return move(decode(capsule, white[:, :-2]), shift / 2 * white[:, -2:])

    return decode_shifted


def move(images: Float[Tensor, "R C H W"], pixels: Float[Tensor, "R 2"]) -> Float[Tensor, "R C H W"]:
    """Shift images right and down by the given number of pixels; fill with black."""
    height, width = images.shape[2:]
    size = torch.tensor([width, height], device=images.device)
    # The grid says where each pixel comes from, in coordinates from -1 to 1.
    offset = -2 * pixels / size
    identity = torch.eye(2, device=images.device).expand(len(images), 2, 2)
    grid = F.affine_grid(torch.cat([identity, offset[:, :, None]], 2), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)


def enlarge(images: Float[Tensor, "B C H W"], factor: float) -> Float[Tensor, "B C H W"]:
    """Scale what images show about their middle; they keep their size."""
    if factor == 1:
        return images
    map_2x3 = torch.eye(2, 3, device=images.device) / factor
    grid = F.affine_grid(map_2x3.expand(len(images), 2, 3), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False)
