r"""Complete images: keep the pixels that are seen, and draw the others from the posterior of a capsule and its pose.

A capsule j with whitened pose v decodes to an image d_j(v). Given the seen pixels y,

.. math:: P(j, v \mid y) \propto P(j)\, N(v; 0, 1) \exp(-|d_j(v) - y|_{seen}^2 / 2 \sigma^2)

1. In every capsule, find the mode of the pose with the linear decoder of `explain`, and the Gaussian around it
   (Laplace's approximation), whose integral is the capsule's evidence.
2. Draw a capsule by its evidence.
3. Draw its pose by Hamiltonian Monte Carlo with the network's own decoder, from a draw of that Gaussian.

Squared errors are the same for an image and its negative, so polarity plays no part.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from capspoe.errors import InputError
from capspoe.infer.chains import hmc
from capspoe.infer.explain import Decode, LinearDecoder, capsule_decoder, linear_decoder_of
from capspoe.model.checks import check_count, check_seed
from capspoe.model.network import Network
from capspoe.model.noise import Noise

LOGIT_SCALE = 1.0  # the decoded code as it is, P(x | h)


@dataclass(frozen=True)
class Sampler:
    """How the posterior is modelled and sampled.

    The variance and the weight of the evidence had the least error on halves of 200 training images of MNIST.
    """

    variance: float = 0.2  # sigma^2 of a pixel
    evidence_weight: float = 0.25  # of the log evidence, because the pixels of a stroke err together
    newton_steps: int = 12  # to the mode of a pose
    steps: int = 8  # of Hamiltonian Monte Carlo
    leaps: int = 4  # in each of them
    chunk_size: int = 32  # images completed at once


DEFAULT = Sampler()


class Completion(NamedTuple):
    """`count` completions of each of n images.

    images         (n, count, H, W, C): float32 in [0, 1]
    capsule        (n, count): the capsule of each
    probability    (n, J): of each capsule, given what is seen
    """

    images: np.ndarray
    capsule: np.ndarray
    probability: np.ndarray


class Seen(NamedTuple):
    """The pixels of images that are seen."""

    pixels: Float[Tensor, "B V"]
    mask: Float[Tensor, "B V"]  # 1 where a pixel is seen, otherwise 0

    def errors(self, decoded: Float[Tensor, "B K V"]) -> Float[Tensor, "B K V"]:
        """The seen pixels less K decoded images each; 0 where nothing is seen."""
        return (self.pixels[:, None] - decoded) * self.mask[:, None]


def complete(
    network: Network, images: Any, mask: Any, count: int = 4, seed: int = 0, sampler: Sampler = DEFAULT
) -> Completion:
    """Complete images, whose hidden pixels may have any value. The mean of many completions has the least error.

    Parameters
    ----------
    network : with images, not plain features
    images : as for `Network.encode`
    mask : what is hidden: boolean (H, W), or (n, H, W) for each image; "left", "right", "top", "bottom" or "centre";
        or a box "LEFT,TOP,WIDTH,HEIGHT" in pixels
    count : completions of each image
    seed : the same seed gives the same completions
    sampler : how the posterior is modelled and sampled
    """
    check_count("count", count)
    check_seed(seed)
    size = network.image[:2]
    hidden = torch.from_numpy(find_mask(mask, size)).to(network.device)
    total = sum(len(chunk) for chunk in network.chunks(images))
    if hidden.ndim == 3 and len(hidden) != total:
        raise InputError(f"there are {total} images, but {len(hidden)} masks")
    hidden = hidden.expand(total, *size)

    posterior = Posterior(
        linear_decoder_of(network, LOGIT_SCALE),
        capsule_decoder(network, LOGIT_SCALE),
        network.prior.use,
        sampler,
    )
    filled, capsules, probabilities = [], [], []
    first = 0
    for chunk in network.chunks(images):
        for x in chunk.split(sampler.chunk_size):
            rows = torch.arange(first, first + len(x), device=x.device)
            first += len(x)
            keep = ~hidden[rows, None].expand_as(x)
            # The noise of a completion belongs to its image and number, whatever the count.
            index = rows[:, None] + 2**32 * torch.arange(count, device=x.device)
            drawn = posterior.draw(Seen(x.flatten(1), keep.flatten(1).float()), index, int(seed))
            decoded = drawn.images.unflatten(2, x.shape[1:])
            completed = torch.where(keep[:, None], x[:, None], decoded)
            filled.append(completed.permute(0, 1, 3, 4, 2).cpu().numpy())
            capsules.append(drawn.capsule.cpu().numpy())
            probabilities.append(drawn.probability.cpu().numpy())
    return Completion(np.concatenate(filled), np.concatenate(capsules), np.concatenate(probabilities))


def find_mask(mask: Any, shape: tuple[int, int]) -> Bool[np.ndarray, "..."]:
    """Where pixels are hidden, (H, W) or (n, H, W), from an array, a region, or a box "LEFT,TOP,WIDTH,HEIGHT"."""
    if not isinstance(mask, str):
        array = np.asarray(mask)
        if array.shape[-2:] != shape or array.ndim > 3 or array.dtype != bool:
            height, width = shape
            of_shape = f"({height}, {width}) or (n, {height}, {width})"
            raise InputError(f"mask must be boolean, of shape {of_shape}, True where pixels are hidden")
        return array
    height, width = shape
    boxes = {
        "left": (0, 0, width // 2, height),
        "right": (width // 2, 0, width, height),
        "top": (0, 0, width, height // 2),
        "bottom": (0, height // 2, width, height),
        "centre": (width // 4, height // 4, width // 2, height // 2),
    }
    try:
        left, top, wide, high = boxes[mask] if mask in boxes else map(int, mask.split(","))
    except ValueError:
        raise InputError(f"mask must be {', '.join(boxes)} or LEFT,TOP,WIDTH,HEIGHT, not {mask!r}") from None
    hidden = np.zeros(shape, bool)
    hidden[max(top, 0) : max(top + high, 0), max(left, 0) : max(left + wide, 0)] = True
    if not hidden.any():
        raise InputError(f"the mask {mask} hides nothing: the image has {width}x{height} pixels")
    return hidden


# The mode of every capsule's pose, and the Gaussian around it.


class Laplace(NamedTuple):
    """A Gaussian around the mode of every capsule's pose."""

    mode: Float[Tensor, "B J N"]
    precision: Float[Tensor, "B J N N"]
    log_evidence: Float[Tensor, "B J"]


class Expansion(NamedTuple):
    """The log density of poses v, its gradient, and the Gauss-Newton approximation of minus its curvature."""

    v: Float[Tensor, "B J N"]
    density: Float[Tensor, "B J"]
    gradient: Float[Tensor, "B J N"]
    curvature: Float[Tensor, "B J N N"]

    def newton_step(self, damping: Float[Tensor, "B J"]) -> Float[Tensor, "B J N"]:
        """The poses after a step with Levenberg and Marquardt's damping."""
        ridge = torch.diag_embed(damping[..., None] * self.curvature.diagonal(dim1=-2, dim2=-1))
        return self.v + torch.linalg.solve(self.curvature + ridge, self.gradient)

    def replace_where(self, better: Bool[Tensor, "B J"], other: "Expansion") -> "Expansion":
        """The other one where that is better."""
        return Expansion(
            torch.where(better[..., None], other.v, self.v),
            torch.where(better, other.density, self.density),
            torch.where(better[..., None], other.gradient, self.gradient),
            torch.where(better[..., None, None], other.curvature, self.curvature),
        )


@torch.no_grad()
def laplace(linear: LinearDecoder, seen: Seen, sampler: Sampler = DEFAULT) -> Laplace:
    """The mode of each capsule's pose given the seen pixels, by damped Gauss-Newton steps."""
    slope_JNV = linear.affine[:, :-1]
    offset_JV = linear.affine[:, -1]
    J, N, _ = slope_JNV.shape
    product_JVNN = torch.einsum("jnv,jmv->jvnm", slope_JNV, slope_JNV)
    product_JVK = product_JVNN.flatten(2)  # K = N N
    mask = seen.mask[:, None]

    def expand(v: Float[Tensor, "B J N"]) -> Expansion:
        p = torch.sigmoid(torch.einsum("bjn,jnv->bjv", v, slope_JNV) + offset_JV)
        slope_of_p = p * (1 - p)
        error = seen.errors(p)
        density = -error.square().sum(-1) / (2 * sampler.variance) - v.square().sum(-1) / 2
        gradient = torch.einsum("bjv,jnv->bjn", error * slope_of_p / sampler.variance, slope_JNV) - v
        weight = slope_of_p.square() * mask / sampler.variance
        curvature = torch.einsum("bjv,jvk->bjk", weight, product_JVK).unflatten(-1, (N, N))
        return Expansion(v, density, gradient, curvature + torch.eye(N).to(v))

    best = expand(seen.pixels.new_zeros(len(seen.pixels), J, N))
    damping = torch.ones_like(best.density)
    for _ in range(sampler.newton_steps):
        trial = expand(best.newton_step(damping))
        better = trial.density > best.density
        best = best.replace_where(better, trial)
        damping = torch.where(better, damping / 4, damping * 4)
    return Laplace(best.v, best.curvature, best.density - torch.logdet(best.curvature) / 2)


# Draws of the posterior.


class PosePosterior(NamedTuple):
    """The density of the pose v = centre + factor u of C capsules for each of B images, as `hmc` needs it."""

    decode: Decode
    capsule: Int[Tensor, "B C"]
    centre: Float[Tensor, "B C N"]
    factor: Float[Tensor, "B C N N"]
    seen: Seen
    variance: float

    def pose(self, u: Float[Tensor, "B C N"]) -> Float[Tensor, "B C N"]:
        return self.centre + torch.einsum("bcnm,bcm->bcn", self.factor, u)

    def images(self, v: Float[Tensor, "B C N"]) -> Float[Tensor, "B C V"]:
        return self.decode(self.capsule.flatten(), v.flatten(0, 1)).flatten(1).unflatten(0, v.shape[:2])

    def log_density(self, u: Float[Tensor, "B C N"]) -> Float[Tensor, "B C"]:
        v = self.pose(u)
        error = self.seen.errors(self.images(v))
        return -error.square().sum(-1) / (2 * self.variance) - v.square().sum(-1) / 2

    @torch.enable_grad()
    def gradient(self, u: Float[Tensor, "B C N"]) -> Float[Tensor, "B C N"]:
        u = u.detach().requires_grad_()
        return torch.autograd.grad(self.log_density(u).sum(), u)[0]


class Drawn(NamedTuple):
    """C draws for each of B images."""

    images: Float[Tensor, "B C V"]  # decoded
    capsule: Int[Tensor, "B C"]
    probability: Float[Tensor, "B J"]  # of each capsule


class Posterior(NamedTuple):
    """P(capsule, pose | seen pixels) of a model."""

    linear: LinearDecoder
    decode: Decode  # the model's own
    use: Float[Tensor, " J"]  # P(j)
    sampler: Sampler = DEFAULT

    @torch.no_grad()
    def draw(self, seen: Seen, index: Int[Tensor, "B C"], seed: int) -> Drawn:
        """C draws for each image; their noise belongs to the seed and to their index."""
        dtype = seen.pixels.dtype
        gaussian = laplace(self.linear, seen, self.sampler)
        probability = torch.softmax(self.sampler.evidence_weight * gaussian.log_evidence + self.use.log(), -1)

        # A capsule for every draw, and a pose from the Gaussian around its mode.
        noise = Noise(seed, 0, index.flatten(), dtype)
        capsule = noise.choose(0, probability.repeat_interleave(index.shape[1], 0)).view(index.shape)
        rows = torch.arange(len(index), device=index.device)[:, None]
        factor = torch.linalg.inv(torch.linalg.cholesky(gaussian.precision)).transpose(-2, -1)[rows, capsule]
        centre = gaussian.mode[rows, capsule]
        u = noise.normal(1, factor.shape[-1]).unflatten(0, index.shape)

        # From there, chains with the model's own decoder.
        density = PosePosterior(self.decode, capsule, centre, factor, seen, self.sampler.variance)
        for step in range(self.sampler.steps):
            noise = Noise(seed, 1 + step, index.flatten(), dtype)
            u = hmc(density, u, noise, self.sampler.leaps).h
        return Drawn(density.images(density.pose(u)), capsule, probability)
