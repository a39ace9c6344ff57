r"""Complete images: keep the pixels that are seen, and draw the others from the posterior of a capsule and its pose.

A capsule j with whitened pose v decodes to an image d_j(v). Given the seen pixels y,

.. math:: P(j, v \mid y) \propto P(j)\, N(v; 0, 1) \exp(-|d_j(v) - y|_{seen}^2 / 2 \sigma^2)

1. In every capsule, the mode of the pose with the linear decoder of explain.py, and the Gaussian around it (Laplace's
   approximation), whose integral is the capsule's evidence.
2. Draw a capsule by its evidence.
3. Draw its pose by Hamiltonian Monte Carlo with the network's own decoder, from a draw of that Gaussian.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from capspoe.errors import InputError
from capspoe.infer.chains import hmc
from capspoe.infer.explain import CHUNK, Decode, LinearDecoder, decoders_of
from capspoe.model.checks import check_count, check_seed
from capspoe.model.network import Network
from capspoe.model.noise import Noise

VARIANCE = 0.2  # sigma^2 of a pixel; this and EVIDENCE had the least error on halves of 200 training images of MNIST
EVIDENCE = 0.25  # weight of the log evidence: the pixels of a stroke err together
NEWTON_STEPS, STEPS, LEAPS = 12, 8, 4


class Completion(NamedTuple):
    """`count` completions of each of n images.

    images         (n, count, H, W, C): float32 in [0, 1]
    capsule        (n, count): the capsule of each
    probability    (n, J): of each capsule, given what is seen
    """

    images: np.ndarray
    capsule: np.ndarray
    probability: np.ndarray


def find_mask(mask: Any, shape: tuple[int, int]) -> Bool[np.ndarray, "..."]:
    """Where pixels are hidden, (H, W) or (n, H, W), from an array, a region, or a box "LEFT,TOP,WIDTH,HEIGHT"."""
    if not isinstance(mask, str):
        array = np.asarray(mask)
        if array.shape[-2:] != shape or array.ndim > 3 or array.dtype != bool:
            raise InputError(f"mask must be boolean, of shape {shape} or (n, *{shape}), True where pixels are hidden")
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
    return hidden


class Laplace(NamedTuple):
    """A Gaussian around the mode of every capsule's pose."""

    mode: Float[Tensor, "B J N"]
    precision: Float[Tensor, "B J N N"]
    log_evidence: Float[Tensor, "B J"]


@torch.no_grad()
def laplace(linear: LinearDecoder, y: Float[Tensor, "B V"], seen: Float[Tensor, "B V"], variance: float) -> Laplace:
    """The mode of each capsule's pose given the seen pixels, by Gauss-Newton steps with Levenberg's damping."""
    slope_JNV, offset_JV = linear.affine[:, :-1], linear.affine[:, -1]
    J, N, _ = slope_JNV.shape
    products = torch.einsum("jnv,jmv->jvnm", slope_JNV, slope_JNV).flatten(2)
    y, seen = y[:, None], seen[:, None]

    def at(v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log density, its gradient, and the Gauss-Newton approximation of its curvature."""
        p = torch.sigmoid(torch.einsum("bjn,jnv->bjv", v, slope_JNV) + offset_JV)
        error, change = (y - p) * seen, p * (1 - p)
        density = -error.square().sum(-1) / (2 * variance) - v.square().sum(-1) / 2
        gradient = torch.einsum("bjv,jnv->bjn", error * change / variance, slope_JNV) - v
        curvature = torch.einsum("bjv,jvk->bjk", change.square() * seen / variance, products).unflatten(-1, (N, N))
        return density, gradient, curvature + torch.eye(N).to(v)

    v, damping = y.new_zeros(len(y), J, N), y.new_ones(len(y), J, 1)
    density, gradient, curvature = at(v)
    for _ in range(NEWTON_STEPS):
        ridge = torch.diag_embed(damping * curvature.diagonal(dim1=-2, dim2=-1))
        new = v + torch.linalg.solve(curvature + ridge, gradient)
        found = at(new)
        better = (found[0] > density)[..., None]
        v, gradient = torch.where(better, new, v), torch.where(better, found[1], gradient)
        density = torch.where(better[..., 0], found[0], density)
        curvature = torch.where(better[..., None], found[2], curvature)
        damping = torch.where(better, damping / 4, damping * 4)
    return Laplace(v, curvature, density - torch.logdet(curvature) / 2)


class SeenPosterior(NamedTuple):
    """The density of the pose v = centre + factor u of C capsules for each of B images."""

    decode: Decode
    capsule: Int[Tensor, "B C"]
    centre: Float[Tensor, "B C N"]
    factor: Float[Tensor, "B C N N"]
    y: Float[Tensor, "B V"]
    seen: Float[Tensor, "B V"]
    variance: float

    def images(self, u: Float[Tensor, "B C N"]) -> tuple[Float[Tensor, "B C V"], Float[Tensor, "B C N"]]:
        v = self.centre + torch.einsum("bcnm,bcm->bcn", self.factor, u)
        return self.decode(self.capsule.flatten(), v.flatten(0, 1)).flatten(1).unflatten(0, u.shape[:2]), v

    def log_density(self, u: Float[Tensor, "B C N"]) -> Float[Tensor, "B C"]:
        decoded, v = self.images(u)
        error = (decoded - self.y[:, None]) * self.seen[:, None]
        return -error.square().sum(-1) / (2 * self.variance) - v.square().sum(-1) / 2

    @torch.enable_grad()
    def gradient(self, u: Float[Tensor, "B C N"]) -> Float[Tensor, "B C N"]:
        u = u.detach().requires_grad_()
        return torch.autograd.grad(self.log_density(u).sum(), u)[0]


@torch.no_grad()
def draw(
    decoders: tuple[LinearDecoder, Decode],
    use: Float[Tensor, " J"],
    y: Float[Tensor, "B V"],
    seen: Float[Tensor, "B V"],
    index: Int[Tensor, "B C"],
    seed: int,
    variance: float = VARIANCE,
    evidence: float = EVIDENCE,
    steps: int = STEPS,
) -> tuple[Float[Tensor, "B C V"], Int[Tensor, "B C"], Float[Tensor, "B J"]]:
    """C decoded draws for each image, their capsules, and the probability of each capsule."""
    found = laplace(decoders[0], y, seen, variance)
    probability = torch.softmax(evidence * found.log_evidence + use.log(), -1)
    rows, noise = torch.arange(len(y), device=y.device)[:, None], Noise(seed, 0, index.flatten(), y.dtype)
    capsule = noise.choose(0, probability.repeat_interleave(index.shape[1], 0)).view(index.shape)
    factor = torch.linalg.inv(torch.linalg.cholesky(found.precision)).transpose(-2, -1)[rows, capsule]
    posterior = SeenPosterior(decoders[1], capsule, found.mode[rows, capsule], factor, y, seen, variance)
    u = noise.normal(1, factor.shape[-1]).unflatten(0, index.shape)
    for step in range(steps):
        u = hmc(posterior, u, Noise(seed, 1 + step, index.flatten(), y.dtype), LEAPS).h
    return posterior.images(u)[0], capsule, probability


def complete(network: Network, images: Any, mask: Any, count: int = 4, seed: int = 0) -> Completion:
    """Complete images whose hidden pixels may have any value; their mean over many completions has the least error.

    Parameters
    ----------
    images : as for `Network.encode`
    mask : what is hidden: boolean (H, W), or (n, H, W) for each image; "left", "right", "top", "bottom" or "centre";
        or a box "LEFT,TOP,WIDTH,HEIGHT" in pixels
    count : completions of each image
    seed : the same seed gives the same completions
    """
    check_count("count", count)
    check_seed(seed)
    hidden, parts, first = torch.from_numpy(find_mask(mask, network.image[:2])).to(network.device), [], 0
    total, decoders = sum(map(len, network.chunks(images))), decoders_of(network, 1.0)
    if hidden.ndim == 3 and len(hidden) != total:
        raise InputError(f"there are {total} images, but {len(hidden)} masks")
    hidden = hidden.expand(total, *network.image[:2])[:, None]
    for x in (part for chunk in network.chunks(images) for part in chunk.split(CHUNK)):
        rows = torch.arange(first, first + len(x), device=x.device)
        keep = ~hidden[rows].expand_as(x)
        index = rows[:, None] + 2**32 * torch.arange(count, device=x.device)  # the same whatever the count
        decoded, *rest = draw(decoders, network.prior.use, x.flatten(1), keep.flatten(1).float(), index, int(seed))
        filled = torch.where(keep[:, None], x[:, None], decoded.unflatten(2, x.shape[1:]))
        parts.append([filled.permute(0, 1, 3, 4, 2).cpu().numpy(), *(t.cpu().numpy() for t in rest)])
        first += len(x)
    return Completion(*(np.concatenate(values) for values in zip(*parts, strict=True)))
