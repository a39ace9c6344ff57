r"""Explain an image by several capsules at once: which objects are in it, and which pixel belongs to which.

A capsule with whitened pose v decodes to an image d_j(v). Objects are composed, strokes by the maximum. The best
explanation of an image I by k capsules maximises

.. math:: -\lambda \, |\max_m d_{j_m}(v_m) - I|^2 - \tfrac{1}{4} \sum_m |v_m|^2

No labels are needed, and no training on superpositions. The search has three steps.

1. Proposals: fit every capsule alone. Ink where the image has none is penalised; missing ink is not, because another
   object may explain it.
2. Selection: compose the proposals of every k capsules, and fit the best sets together.
3. Refinement: fit the best of these with the network's own decoder; the best objective wins.

The first two use a linear decoder: the logits of the pixels regressed on the pose, in each capsule. It is a hundred
times cheaper, and reproduces nine tenths of the variance of MNIST's pixels. The search needs only a decoder, so that
other models can be put in the capsules' place.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.core.autoencoder import from_capsules
from capspoe.core.checks import check_choice, check_count
from capspoe.core.gates import place
from capspoe.core.network import Network
from capspoe.core.noise import Noise
from capspoe.errors import InputError

Decode = Callable[[Int[Tensor, " R"], Float[Tensor, "R N"]], Float[Tensor, "R C H W"]]
Compose = Callable[[Float[Tensor, "R k C H W"]], Float[Tensor, "R C H W"]]

CHUNK = 32  # images searched at once
OPAQUE = 0.1  # brightness from which a pixel of an opaque object hides what is behind it
LOGIT_SCALE = 2.0  # softer than that of samples, so that the poses have gradients
MOST = 3  # objects that are tried when their number is not given


class Search(NamedTuple):
    """Effort and weights of the search."""

    proposal_steps: int = 25
    proposal_rate: float = 0.25
    sets: tuple[int, ...] = (40, 8)  # of capsules that are fitted with the linear decoder, and with the real one
    steps: tuple[int, ...] = (15, 15)
    rate: float = 0.2
    error_weight: float = 10.0  # lambda
    object_cost: float = 20.0  # of another object, when their number is not given


def maximum(objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
    """Strokes written over each other."""
    return objects.amax(1)


def total(objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
    """Light that adds up."""
    return objects.sum(1).clamp_max(1)


def visibility(objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R k 1 H W"]:
    """How much of each opaque object is seen; the first is in front, and the last hides nothing."""
    alpha = torch.sigmoid(40 * (objects.amax(2, keepdim=True) - OPAQUE))
    alpha = torch.cat([alpha[:, :-1], torch.ones_like(alpha[:, :1])], 1)
    behind = torch.cat([torch.ones_like(alpha[:, :1]), (1 - alpha[:, :-1]).cumprod(1)], 1)
    return alpha * behind


def occlusion(objects: Float[Tensor, "R k C H W"]) -> Float[Tensor, "R C H W"]:
    """Opaque objects, the first in front."""
    return (visibility(objects) * objects).sum(1)


COMPOSITIONS: dict[str, Compose] = {"maximum": maximum, "sum": total, "occlusion": occlusion}


def responsibilities(objects: Float[Tensor, "R k C H W"], compose: Compose) -> Float[Tensor, "R k H W"]:
    """How much each object accounts for each pixel: routing weights over the upper capsules, which sum to 1."""
    if compose is occlusion:
        return visibility(objects)[:, :, 0]
    brightness = objects.mean(2)
    if compose is total:
        return brightness / brightness.sum(1, keepdim=True).clamp_min(1e-6)
    return torch.softmax(20 * brightness, 1)


class Fit(NamedTuple):
    """Poses, what they decode to, and the objective."""

    pose: Float[Tensor, "*R k N"]
    objects: Float[Tensor, "*R k C H W"]
    objective: Float[Tensor, " *R"]

    def take(self, *index: Tensor) -> "Fit":
        return Fit(*(t[index] for t in self))


class Found(NamedTuple):
    """Sets of capsules that were refined for each image, the best first."""

    capsule: Int[Tensor, "B s k"]
    fit: Fit  # (B, s, ...)


def fit(
    decode: Decode,
    capsule: Int[Tensor, "R k"],
    pose: Float[Tensor, "R k N"],
    likelihood: Callable[[Float[Tensor, "R k C H W"]], Float[Tensor, " R"]],
    steps: int,
    rate: float,
) -> Iterator[Fit]:
    """Maximise likelihood(objects) - |v|^2 / 4 by Adam with a falling rate; yields the start and every step.

    The rows are independent problems: the gradient of their sum is theirs.
    """
    first, second = torch.zeros_like(pose), torch.zeros_like(pose)
    for step in range(steps + 1):
        pose = pose.detach().requires_grad_(step < steps)
        with torch.set_grad_enabled(step < steps):
            objects = decode(capsule.flatten(), pose.flatten(0, 1)).unflatten(0, capsule.shape)
            objective = likelihood(objects) - pose.square().sum((1, 2)) / 4
        yield Fit(pose.detach(), objects.detach(), objective.detach())
        if step < steps:
            (gradient,) = torch.autograd.grad(objective.sum(), pose)
            first = 0.8 * first + 0.2 * gradient
            second = 0.95 * second + 0.05 * gradient.square()
            scale = (second / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8
            pose = pose + rate * (1 - 0.8 * step / steps) * first / (1 - 0.8 ** (step + 1)) / scale


def last(fits: Iterator[Fit]) -> Fit:
    for found in fits:
        pass
    return found


def propose(
    decode: Decode, images: Float[Tensor, "B C H W"], shape: tuple[int, int], search: Search
) -> Fit:
    """Fit each of J capsules with N neurons, `shape` = (J, N), alone to a part of each image, from its mean pose."""
    B, J = len(images), shape[0]
    target = images.repeat_interleave(J, 0)[:, None]

    def part(objects: Tensor) -> Tensor:
        explained = torch.minimum(objects, target).sum((1, 2, 3, 4))
        return 0.6 * explained - 6 * (objects - target).clamp_min(0).square().sum((1, 2, 3, 4))

    capsule = torch.arange(J, device=images.device).repeat(B)[:, None]
    start = images.new_zeros(B * J, 1, shape[1])
    found = last(fit(decode, capsule, start, part, search.proposal_steps, search.proposal_rate))
    return Fit(*(t.unflatten(0, (B, J)) for t in found))


def select(
    proposals: Fit, images: Float[Tensor, "B C H W"], k: int, compose: Compose, search: Search
) -> Int[Tensor, "B s k"]:
    """The sets of k capsules whose proposals, composed as they are, reproduce each image best."""
    orders = itertools.permutations if compose is occlusion else itertools.combinations
    sets = torch.tensor(list(orders(range(proposals.pose.shape[1]), k)), device=images.device)
    prior = proposals.pose.square().sum((2, 3))[:, sets].sum(-1) / 4
    errors = [
        (compose(own[sets, 0]) - x).square().sum((1, 2, 3))
        for own, x in zip(proposals.objects, images, strict=True)
    ]
    objective = -search.error_weight * torch.stack(errors) - prior
    return sets[objective.topk(min(search.sets[0], len(sets)), 1).indices]


def refine(
    decode: Decode,
    images: Float[Tensor, "B C H W"],
    capsule: Int[Tensor, "B s k"],
    start: Float[Tensor, "B s k N"],
    compose: Compose,
    steps: int,
    search: Search,
) -> Iterator[Found]:
    """Fit the poses of every set together; yields every step, the best sets first."""
    shape = capsule.shape[:2]
    target = images.repeat_interleave(shape[1], 0)
    rows = torch.arange(shape[0], device=images.device)[:, None]

    def whole(objects: Tensor) -> Tensor:
        return -search.error_weight * (compose(objects) - target).square().sum((1, 2, 3))

    for found in fit(decode, capsule.flatten(0, 1), start.flatten(0, 1), whole, steps, search.rate):
        fits = Fit(*(t.unflatten(0, shape) for t in found))
        order = fits.objective.argsort(1, descending=True)
        yield Found(capsule[rows, order], fits.take(rows, order))


def search_steps(
    decoders: tuple[Decode, Decode],
    images: Float[Tensor, "B C H W"],
    shape: tuple[int, int],
    k: int,
    compose: Compose = maximum,
    search: Search = Search(),  # noqa: B008
) -> Iterator[Found]:
    """Explain each image by k capsules, with a cheap decoder and the real one; yields every step of the refinement."""
    proposals = propose(decoders[0], images, shape, search)
    capsule = select(proposals, images, k, compose, search)
    rows = torch.arange(len(images), device=images.device)[:, None, None]
    start = proposals.pose[rows, capsule, 0]
    for decode, sets, steps in zip(decoders, search.sets, search.steps, strict=True):
        for found in refine(decode, images, capsule[:, :sets], start[:, :sets], compose, steps, search):
            yield found
        capsule, start = found.capsule, found.fit.pose


def capsule_decoder(network: Network, logit_scale: float = LOGIT_SCALE) -> Decode:
    """A capsule's whitened pose to an image, by the network."""
    autoencoder = network.autoencoder
    kernel, bias = autoencoder.up_2.weight.detach(), autoencoder.up_2.bias.detach()[:, None, None]
    size = network.image[:2]

    def decode(capsule: Tensor, white: Tensor) -> Tensor:
        h = place(network.top.hidden_mean(network.prior.from_white(capsule, white)), capsule, network.top.upper[0])
        code = from_capsules(network.down_to_code(h, None, logit_scale, capsule), autoencoder.code_shape)
        features = F.leaky_relu(autoencoder.up_1(code)).flatten(2)
        # up_2 as a product and a sum: four times as fast on a CPU as the transposed convolution
        return torch.sigmoid(F.fold(kernel.flatten(1).T @ features, size, autoencoder.kernel) + bias)

    return decode


@torch.no_grad()
def linear_decoder(decode: Decode, shape: tuple[int, int], samples: int = 200, seed: int = 0) -> Decode:
    """For each capsule the logits of the pixels as an affine function of the pose, by least squares on samples."""
    (J, N), maps = shape, []
    pose = torch.cat([Noise.for_batch(samples, seed).normal(0, N), torch.ones(samples, 1)], 1)
    for j in range(J):
        images = decode(torch.full((samples,), j), pose[:, :N])
        logits = torch.logit(images, eps=1e-3).flatten(1)
        maps.append(torch.linalg.solve(pose.T @ pose + 0.1 * torch.eye(N + 1), pose.T @ logits))
    affine, size = torch.cat(maps), images.shape[1:]

    def decode_linear(capsule: Tensor, white: Tensor) -> Tensor:
        one = torch.cat([white, torch.ones_like(white[:, :1])], 1)
        return torch.sigmoid(place(one, capsule, J).flatten(1) @ affine).unflatten(1, size)

    return decode_linear
