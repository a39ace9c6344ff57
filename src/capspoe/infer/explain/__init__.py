r"""Explain an image by several capsules at once: which objects are in it, and which pixel belongs to which.

A capsule with whitened pose v decodes to an image d_j(v). Objects are composed, strokes by the maximum. The best
explanation of an image I by k capsules maximises

.. math:: -\lambda \, |\max_m d_{j_m}(v_m) - I| - \tfrac{1}{4} \sum_m |v_m|^2 + \beta \sum_m \ell_{j_m}(I)

where the log-odds l_j of a recognition network, if there is one, say which capsules are in the image. No labels are
needed. The search has three steps.

1. Proposals: fit every capsule alone. Ink where the image has none is penalised; missing ink is not, because another
   object may explain it.
2. Selection: compose the proposals of every k capsules, and fit the best sets together.
3. Refinement: fit the best of these with the network's own decoder; the best objective wins.

The first two use a linear decoder: the logits of the pixels regressed on the pose, in each capsule. It is a hundred
times cheaper, and reproduces nine tenths of the variance of MNIST's pixels. The search needs only a decoder, so that
other models can be put in the capsules' place.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_choice, check_count
from capspoe.model.codec import from_capsules
from capspoe.model.gates import place
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.model.recognition import support

Decode = Callable[[Int[Tensor, " R"], Float[Tensor, "R N"]], Float[Tensor, "R C H W"]]
Compose = Callable[[Float[Tensor, "R k C H W"]], Float[Tensor, "R C H W"]]

CHUNK = 32  # images searched at once
OPAQUE = 0.1  # brightness from which a pixel of an opaque object hides what is behind it
LOGIT_SCALE = 2.0  # softer than that of samples, so that the poses have gradients
COMPOSED = 800  # sets of proposals that are composed for an image
REPEATED = 1e6  # cost of a set that should come last
TEMPERATURE = 4.0  # of the probabilities: on 192 pairs of MNIST the mean probability is the share of right sets
MOST = 3  # objects that are tried when their number is not given


class Search(NamedTuple):
    """Effort and weights of the search."""

    starts: int = 2  # poses of each capsule that proposals start from: its mean, and draws that fit well
    proposal_steps: int = 20
    proposal_rate: float = 0.25
    sets: tuple[int, ...] = (60, 8)  # fitted with the linear decoder, and with the real one
    steps: tuple[int, ...] = (15, 15)
    rate: float = 0.2
    error_weight: float = 3.0  # lambda
    odds_weight: float = 6.0  # beta
    excess: float = 0.5  # factor on errors where one object has ink and the image has none: it may have a hole
    tolerance: float = 0.1  # epsilon
    object_cost: float = 16.0  # of another object, when their number is not given
    shift: float = 0.0  # pixels by which objects may be moved


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
    smooth = (brightness + F.avg_pool2d(brightness, 3, 1, 1)) / 2  # a pixel's neighbours have a say
    return torch.softmax(20 * smooth, 1)


class Sets(NamedTuple):
    """Sets of capsules with poses, what each decodes to, and the objective."""

    capsule: Int[Tensor, "*R k"]
    pose: Float[Tensor, "*R k N"]
    objects: Float[Tensor, "*R k C H W"]
    objective: Float[Tensor, " *R"]


def fit(
    decode: Decode,
    capsule: Int[Tensor, "B s k"],
    pose: Float[Tensor, "B s k N"],
    likelihood: Callable[[Float[Tensor, "B s k C H W"]], Float[Tensor, "B s"]],
    steps: int,
    rate: float,
) -> Iterator[Sets]:
    """Maximise likelihood(objects) - |v|^2 / 4 by Adam with a falling rate; yields the start and every step.

    The sets are independent problems: the gradient of their sum is theirs.
    """
    first, second = torch.zeros_like(pose), torch.zeros_like(pose)
    for step in range(steps + 1):
        pose = pose.detach().requires_grad_(step < steps)
        with torch.set_grad_enabled(step < steps):
            objects = decode(capsule.flatten(), pose.flatten(0, 2)).unflatten(0, capsule.shape)
            objective = likelihood(objects) - pose.square().sum((2, 3)) / 4
        yield Sets(capsule, pose.detach(), objects.detach(), objective.detach())
        if step < steps:
            (gradient,) = torch.autograd.grad(objective.sum(), pose)
            first = 0.8 * first + 0.2 * gradient
            second = 0.95 * second + 0.05 * gradient.square()
            scale = (second / (1 - 0.95 ** (step + 1))).sqrt() + 1e-8
            pose = pose + rate * (1 - 0.8 * step / steps) * first / (1 - 0.8 ** (step + 1)) / scale


def take(sets: Sets, index: Int[Tensor, "B s"]) -> Sets:
    rows = torch.arange(len(index), device=index.device)[:, None]
    return Sets(*(t[rows, index] for t in sets))


def last(steps: Iterator[Sets]) -> Sets:
    return deque(steps, maxlen=1)[0]


def part_of(objects: Float[Tensor, "*R C H W"], images: Float[Tensor, "*R C H W"]) -> Float[Tensor, " *R"]:
    """How well objects explain a part of the images: they may leave ink out, but not add any."""
    excess = (objects - images).clamp_min(0).square().sum((-3, -2, -1))
    return 0.6 * torch.minimum(objects, images).sum((-3, -2, -1)) - 6 * excess


def misfit(
    composed: Float[Tensor, "*R C H W"], images: Float[Tensor, "*R C H W"], search: Search
) -> Float[Tensor, " *R"]:
    """lambda sum(sqrt(r^2 + eps^2) - eps) over the residuals r: between absolute and squared errors."""
    residual = composed - images
    error = (residual.square() + search.tolerance**2).sqrt() - search.tolerance
    return search.error_weight * torch.where(residual > 0, search.excess * error, error).sum((-3, -2, -1))


def starts(
    decode: Decode, images: Float[Tensor, "B C H W"], shape: tuple[int, int], search: Search
) -> Float[Tensor, "B J s N"]:
    """For each capsule its mean pose, and those of 50 draws that explain a part of the image best."""
    (J, N), S = shape, 50
    draws = Noise.for_batch(J * S).normal(0, N).to(images)
    each = torch.arange(J, device=images.device)
    decoded = decode(each.repeat_interleave(S), draws)
    fits = torch.stack([part_of(decoded, image) for image in images]) - draws.square().sum(-1) / 4
    best = fits.view(len(images), J, S).topk(search.starts - 1, -1).indices
    chosen = draws.view(J, S, N)[each[:, None], best]
    return torch.cat([torch.zeros_like(chosen[:, :, :1]), 0.7 * chosen], 2)


def propose(decode: Decode, images: Float[Tensor, "B C H W"], shape: tuple[int, int], search: Search) -> Sets:
    """Fit each of J capsules with N neurons, `shape` = (J, N), alone to a part of each image."""
    start = starts(decode, images, shape, search).flatten(1, 2)[:, :, None]
    capsule = torch.arange(shape[0], device=images.device).repeat_interleave(search.starts)
    capsule = capsule.expand(len(images), -1)[:, :, None]
    target = images[:, None, None]
    steps, rate = search.proposal_steps, search.proposal_rate
    return last(fit(decode, capsule, start, lambda objects: part_of(objects, target)[..., 0], steps, rate))


def select(
    proposals: Sets, images: Float[Tensor, "B C H W"], k: int, compose: Compose, search: Search, odds: Tensor
) -> tuple[Int[Tensor, "B s k"], Float[Tensor, "B s k N"]]:
    """The sets of k proposals of different capsules that, composed as they are, reproduce each image best."""
    ordered = compose is occlusion
    ways: Callable[[int, int], int] = math.perm if ordered else math.comb
    kept = max(c for c in range(k, proposals.pose.shape[1] + 1) if c == k or ways(c, k) <= COMPOSED)
    orders = itertools.permutations(range(kept), k) if ordered else itertools.combinations(range(kept), k)
    sets = torch.tensor(list(orders), device=images.device)
    value = proposals.objective + support(odds, proposals.capsule)
    proposals = take(proposals, value.topk(kept, 1).indices)
    capsule = proposals.capsule[:, sets, 0]
    repeated = (capsule.sort(-1).values.diff(dim=-1) == 0).any(-1)
    prior = proposals.pose.square().sum((2, 3))[:, sets].sum(-1) / 4 - support(odds, capsule)
    composed = (compose(objects[sets, 0]) for objects in proposals.objects)
    error = torch.stack([misfit(d, x, search) for d, x in zip(composed, images, strict=True)])
    count = min(search.sets[0], int((~repeated).sum(1).min()))
    chosen = sets[(error + prior + REPEATED * repeated).topk(count, 1, largest=False).indices]
    rows = torch.arange(len(images), device=images.device)[:, None, None]
    return proposals.capsule[rows, chosen, 0], proposals.pose[rows, chosen, 0]


def best_first(sets: Sets) -> Sets:
    """Sets by falling objective, those last that have the same capsules as a better one."""
    same = (sets.capsule[:, :, None] == sets.capsule[:, None]).all(-1)
    worse = (same & (sets.objective[:, :, None] < sets.objective[:, None])).any(-1)
    return take(sets, (sets.objective - REPEATED * worse).argsort(1, descending=True))


def search_steps(
    decoders: tuple[Decode, Decode],
    images: Float[Tensor, "B C H W"],
    shape: tuple[int, int],
    k: int,
    compose: Compose = maximum,
    search: Search = Search(),  # noqa: B008
    log_odds: Float[Tensor, "B J"] | None = None,
) -> Iterator[Sets]:
    """Explain images by k capsules, with a cheap decoder and the real one; yields every step, the best sets first.

    log_odds are those of a recognition network, if there is one.
    """
    if k > min(MOST + 1, shape[0]):
        raise InputError(f"k must be at most {min(MOST + 1, shape[0])}, not {k}")
    if search.shift:
        decoders = shifted(decoders[0], search.shift), shifted(decoders[1], search.shift)
        shape = shape[0], shape[1] + 2
    if k > 1:
        search = search._replace(excess=1.0)
    target = images[:, None]
    odds = images.new_zeros(len(images), shape[0]) if log_odds is None else search.odds_weight * log_odds
    capsule, pose = select(propose(decoders[0], images, shape, search), images, k, compose, search, odds)

    def whole(objects: Tensor) -> Tensor:
        error = misfit(compose(objects.flatten(0, 1)).unflatten(0, objects.shape[:2]), target, search)
        return support(odds, capsule[:, : objects.shape[1]]) - error

    for decode, sets, steps in zip(decoders, search.sets, search.steps, strict=True):
        for found in fit(decode, capsule[:, :sets], pose[:, :sets], whole, steps, search.rate):
            ordered = best_first(found)
            yield ordered
        capsule, pose, *_ = ordered


def capsule_decoder(network: Network, logit_scale: float = LOGIT_SCALE) -> Decode:
    """A capsule's whitened pose to an image, by the network."""
    autoencoder: Any = network.codec
    kernel, bias = autoencoder.up_2.weight, cast(Tensor, autoencoder.up_2.bias)[:, None, None]
    size = network.image[:2]

    def decode(capsule: Tensor, white: Tensor) -> Tensor:
        h = place(network.top.hidden_mean(network.prior.from_white(capsule, white)), capsule, network.top.upper[0])
        code = from_capsules(network.down_to_code(h, None, logit_scale, capsule), autoencoder.code_shape)
        features = F.leaky_relu(autoencoder.up_1(code)).flatten(2)
        # up_2 as a product and a sum: four times as fast on a CPU as the transposed convolution
        return torch.sigmoid(F.fold(kernel.flatten(1).T @ features, size, autoencoder.kernel) + bias)

    return decode


@dataclass(frozen=True)
class LinearDecoder:
    """For each capsule the logits of the pixels as an affine function of the pose; the offset comes last."""

    affine: Float[Tensor, "J N+1 V"]
    size: tuple[int, ...]

    def __call__(self, capsule: Tensor, white: Tensor) -> Tensor:
        one = torch.cat([white, torch.ones_like(white[:, :1])], 1)
        logits = place(one, capsule, len(self.affine)).flatten(1) @ self.affine.flatten(0, 1)
        return torch.sigmoid(logits).unflatten(1, self.size)


@torch.no_grad()
def linear_decoder(
    decode: Decode, shape: tuple[int, int], device: torch.device | None = None, samples: int = 200
) -> LinearDecoder:
    """The one that fits samples of the pose by least squares."""
    (J, N), maps = shape, []
    pose = torch.cat([Noise.for_batch(samples).normal(0, N), torch.ones(samples, 1)], 1).to(device)
    gram = pose.T @ pose + 0.1 * torch.eye(N + 1, device=device)
    for j in range(J):
        images = decode(torch.full((samples,), j, device=device), pose[:, :N])
        maps.append(torch.linalg.solve(gram, pose.T @ torch.logit(images, eps=1e-3).flatten(1)))
    return LinearDecoder(torch.stack(maps), tuple(images.shape[1:]))


def shifted(decode: Decode, shift: float) -> Decode:
    """A decoder of two more numbers: how far the object is moved right and down, in units of shift / 2 pixels."""

    def decode_shifted(capsule: Tensor, white: Tensor) -> Tensor:
        images = decode(capsule, white[:, :-2])
        size = torch.tensor(images.shape[:1:-1], device=white.device)
        map_R23 = torch.eye(2, 3, device=white.device).repeat(len(white), 1, 1)
        map_R23 = torch.cat([map_R23[:, :, :2], (-shift * white[:, -2:] / size)[:, :, None]], 2)
        grid = F.affine_grid(map_R23, list(images.shape), align_corners=False)
        return F.grid_sample(images, grid, align_corners=False)

    return decode_shifted


_DECODERS: WeakKeyDictionary[Network, dict[float, tuple[Any, tuple[LinearDecoder, Decode]]]] = WeakKeyDictionary()


def decoders_of(network: Network, logit_scale: float = LOGIT_SCALE) -> tuple[LinearDecoder, Decode]:
    """The linear decoder and the real one; the former is kept until the network changes."""
    if not network.codec.has_images:
        raise InputError("a network of plain features has no images")
    state = [(t.data_ptr(), t._version) for t in network.state_dict(keep_vars=True).values()]
    kept = _DECODERS.setdefault(network, {})
    if logit_scale not in kept or kept[logit_scale][0] != state:
        decode = capsule_decoder(network, logit_scale)
        kept[logit_scale] = state, (linear_decoder(decode, network.top.upper, network.device), decode)
    return kept[logit_scale][1]


@torch.no_grad()
def dark_ink(network: Network) -> bool:
    """Whether grey objects are dark on a light background: the search then sees negatives, in which ink is light."""
    (J, N), device = network.top.upper, network.device
    means = capsule_decoder(network)(torch.arange(J, device=device), torch.zeros(J, N, device=device))
    return network.image[2] == 1 and light_edge(network.array(means), 0.7)  # an untrained one is grey


def light_edge(images: Float[np.ndarray, "n H W C"], above: float = 0.5) -> bool:
    """Whether the border of images in [0, 1] is mostly light."""
    inside = images[:, 1:-1, 1:-1]
    return bool((images > above).sum() - (inside > above).sum() > (images.size - inside.size) / 2)


def ink_decoders(network: Network, negative: bool) -> tuple[Decode, Decode]:
    linear, real = decoders_of(network)
    return (lambda *pose: 1 - linear(*pose), lambda *pose: 1 - real(*pose)) if negative else (linear, real)


class Explanation(NamedTuple):
    """The objects found in n images, the brightest first (with "occlusion" the front one).

    capsule        (n, k); -1 where an image has fewer objects than others
    probability    (n, k): of the capsule, among all sets of capsules that were refined
    pose           (n, k, N): whitened, so that it is standard normal over the capsule's own images; where objects may
                   be moved, two more numbers say how far to the right and down, in units of shift / 2 pixels
    objects        (n, k, H, W, C): each object decoded alone
    owner          (n, k, H, W): the responsibility of each object for each pixel; sums to 1
    image          (n, H, W, C): the objects composed
    objective      (n,): of the best set
    """

    capsule: np.ndarray
    probability: np.ndarray
    pose: np.ndarray
    objects: np.ndarray
    owner: np.ndarray
    image: np.ndarray
    objective: np.ndarray


def best_of(sets: Sets, compose: Compose, k: int) -> Explanation:
    """The best set of every image, with room for k objects."""
    weight = torch.softmax(sets.objective / TEMPERATURE, 1)
    capsule, pose, objects, objective = (t[:, 0] for t in sets)
    contains = (sets.capsule[:, :, :, None] == capsule[:, None, None]).any(2)
    probability = (weight[:, :, None] * contains).sum(1)
    order = objects.flatten(2).sum(-1).argsort(1, descending=True)
    if compose is occlusion:
        order = torch.arange(order.shape[1], device=order.device).expand(order.shape)
    rows, more = torch.arange(len(order), device=order.device)[:, None], k - order.shape[1]
    each = [capsule + 1, probability, pose, objects.permute(0, 1, 3, 4, 2), responsibilities(objects, compose)]
    arrays = [t[rows, order].cpu().numpy() for t in each]
    arrays = [np.pad(t, [(0, 0), (0, more)] + [(0, 0)] * (t.ndim - 2)) for t in arrays]
    arrays[0] = arrays[0] - 1
    image = compose(objects).permute(0, 2, 3, 1)
    return Explanation(*arrays, *(t.cpu().numpy() for t in (image, objective)))


def explain(
    network: Network,
    images: Any,
    k: int | None = 2,
    compose: str = "maximum",
    search: Search = Search(),  # noqa: B008
) -> Explanation:
    """Explain images by k objects each.

    Parameters
    ----------
    images : as for `Network.encode`
    k : number of objects; None finds it for each image, up to 3: another object must improve the objective by
        `search.object_cost`
    compose : "maximum" for strokes, "occlusion" for opaque objects, "sum" for light
    search : effort of the search
    """
    check_choice("compose", compose, tuple(COMPOSITIONS))
    if k is not None:
        check_count("k", k)
    how, negative, parts = COMPOSITIONS[compose], dark_ink(network), []
    decoders = ink_decoders(network, negative)
    counts = range(1, min(MOST, network.top.upper[0]) + 1) if k is None else [k]
    for x in (part for chunk in network.chunks(images) for part in chunk.split(CHUNK)):
        x = 1 - x if negative else x
        odds = None if network.recognition is None else network.recognition(x)
        tried = [
            best_of(last(search_steps(decoders, x, network.top.upper, count, how, search, odds)), how, counts[-1])
            for count in counts
        ]
        scores = np.stack([t.objective - search.object_cost * c for t, c in zip(tried, counts, strict=True)])
        best = scores.argmax(0), np.arange(len(x))
        parts.append(Explanation(*(np.stack(values)[best] for values in zip(*tried, strict=True))))
    found = Explanation(*(np.concatenate(values) for values in zip(*parts, strict=True)))
    return found._replace(objects=1 - found.objects, image=1 - found.image) if negative else found
