r"""log Z of a layer with the gate and gaussian neurons, and the likelihood of codes.

With each capsule's mean routing weights the layer is a mixture of RBMs over binary codes, and

.. math:: Z = \sum_j e^{d_j - a_j^T \mu} \int P^*(h \mid j)\, dh / (2 \pi)^{N/2}

(the free energy leaves out a gaussian neuron's constant as well). Annealing from a Gaussian to a capsule's density
underestimates its integral (Neal 2001); annealing back from its samples overestimates it (Grosse et al. 2015), both
in expectation. In the N dimensions of a pose they meet.
"""

import itertools
import math
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.core.autoencoder import ConvAutoencoder
from capspoe.core.chains import PoseDensity, hmc
from capspoe.core.layer import CapsuleLayer
from capspoe.core.network import Network
from capspoe.core.noise import Noise
from capspoe.core.prior import CapsulePrior
from capspoe.errors import InputError

CHAINS, STEPS, LEAPS = 64, 60, 8
WIDER = 4.0  # the start's variance as a multiple of the poses': an energy can have modes beyond them


class LogZ(NamedTuple):
    """Estimates of log Z; the truth is most likely between them."""

    lower: float
    upper: float
    gaps: tuple[float, ...]  # upper - lower of each capsule's integral

    @property
    def middle(self) -> float:
        return (self.lower + self.upper) / 2


class Annealed(NamedTuple):
    """q^(1 - t) p^t, where q is a Gaussian for each capsule, as wide as a unit Gaussian or wider.

    Nowhere is the curvature above 1, which suits the steps of `hmc`.
    """

    density: PoseDensity
    mean: Float[Tensor, "J N"]
    precision: Float[Tensor, "J N N"]
    t: float

    def log_q(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        v = h - self.mean[:, None]
        volume = (torch.logdet(self.precision) - h.shape[-1] * math.log(2 * math.pi)) / 2
        return volume[:, None] - (torch.bmm(v, self.precision) * v).sum(-1) / 2

    def log_density(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        return self.t * self.density.log_density(h) + (1 - self.t) * self.log_q(h)

    def gradient(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        pull = torch.bmm(h - self.mean[:, None], self.precision)
        return self.t * self.density.gradient(h) - (1 - self.t) * pull


@torch.no_grad()
def log_partition(layer: CapsuleLayer, prior: CapsulePrior, seed: int = 0) -> LogZ:
    """log Z from both sides; annealing starts at Gaussians that are wider than the prior's."""
    if not layer.gate.exclusive or layer.neurons.name != "gaussian":
        raise InputError("likelihoods need the gate and gaussian neurons")
    J, N = layer.upper
    eye = torch.eye(N, dtype=layer.d.dtype, device=layer.d.device)
    covariance = WIDER * (prior.axes @ prior.axes.transpose(1, 2) + eye)  # poses vary as z does, and by the posterior
    start = Annealed(PoseDensity.of(layer), prior.centre, torch.linalg.inv(covariance), 0.0)
    index = torch.arange(J * CHAINS, device=layer.d.device)
    step = 0

    def noise() -> Noise:
        nonlocal step
        step += 1
        return Noise(seed, step, index, layer.d.dtype)

    def anneal(h: Tensor, times: list[float]) -> tuple[Tensor, Tensor]:
        """Log weights of chains from the first time to the last, and their ends."""
        total = torch.zeros_like(h[..., 0])
        for before, after in itertools.pairwise(times):
            total = total + (after - before) * (start.density.log_density(h) - start.log_q(h))
            h = hmc(start._replace(t=after), h, noise(), LEAPS).h
        return total, h

    def log_mean(weights: Float[Tensor, "J C"]) -> Float[Tensor, " J"]:
        return torch.logsumexp(weights.double(), 1) - math.log(CHAINS)

    times = [k / STEPS for k in range(STEPS + 1)]
    white = noise().normal(0, N).view(J, CHAINS, N)
    first = torch.baddbmm(prior.centre[:, None], white, torch.linalg.cholesky(covariance).transpose(1, 2))
    up, ends = anneal(first, times)
    uniform = noise().uniform(1).view(J, CHAINS, 1)
    drawn = (torch.softmax(up, 1).cumsum(1)[:, None] < uniform).sum(-1).clamp_max(CHAINS - 1)
    h = ends.gather(1, drawn[..., None].expand(-1, -1, N))
    for _ in range(STEPS):  # so that chains with the same start are apart
        h = hmc(start._replace(t=1.0), h, noise(), LEAPS).h
    down, _ = anneal(h, times[::-1])
    constant = layer.d - (layer.a * layer.mu).sum((1, 2)) - N / 2 * math.log(2 * math.pi)
    lower, upper = log_mean(up), -log_mean(down)
    ends = (float(torch.logsumexp(constant.double() + one, 0)) for one in (lower, upper))
    return LogZ(*ends, tuple((upper - lower).tolist()))


@torch.no_grad()
def log_weight(layer: CapsuleLayer, x: Float[Tensor, "B I M"]) -> Float[Tensor, " B"]:
    """log P(x) + log Z = -F(x), with each capsule's mean routing weights."""
    c = (layer.mean_routing / layer.fan).expand(len(x), -1, -1)
    return -layer.free_energy(x, c)


class Scores(NamedTuple):
    """How likely images are: the sum of `code` and `pixels` is `total`; larger is more typical.

    code       (n,): log P(code), with log Z between its two estimates. The code's numbers in (0, 1) stand for units
               that are drawn with these probabilities; as F is concave, the mean of their log P is at least this.
    pixels     (n,): log P(image | code), the cross-entropy that trains the autoencoder; 0 without one
    capsule    (n,): the most probable capsule
    error      (n,): the mean squared error of the pixels, reconstructed by that capsule
    log_z      its estimates from both sides
    """

    code: np.ndarray
    pixels: np.ndarray
    capsule: np.ndarray
    error: np.ndarray
    log_z: LogZ

    @property
    def total(self) -> np.ndarray:
        return self.code + self.pixels


_LOG_Z: WeakKeyDictionary[Network, tuple[list[tuple[int, int]], LogZ]] = WeakKeyDictionary()


def log_z_of(network: Network) -> LogZ:
    """log Z of the top layer; kept until the network changes."""
    state = [(t.data_ptr(), t._version) for t in network.state_dict(keep_vars=True).values()]
    if network not in _LOG_Z or _LOG_Z[network][0] != state:
        _LOG_Z[network] = state, log_partition(network.top, network.prior)
    return _LOG_Z[network][1]


@torch.no_grad()
def score(network: Network, images: Any) -> Scores:
    """The likelihood of each image's code and of its pixels given the code; needs the gate and gaussian neurons."""
    log_z, parts = log_z_of(network), []
    for x in network.chunks(images):
        up = network.up(x)
        pixels = torch.zeros(len(x), device=x.device)
        if isinstance(network.autoencoder, ConvAutoencoder):
            decoded = network.autoencoder.decode(up.code).clamp(1e-6, 1 - 1e-6)
            pixels = -F.binary_cross_entropy(decoded, x, reduction="none").sum((1, 2, 3))
        error = (network.down(up.state, up.c) - x).square().mean((1, 2, 3))
        found = (log_weight(network.top, up.x).double() - log_z.middle, pixels.double(), up.winner, error)
        parts.append([t.cpu().numpy() for t in found])
    return Scores(*(np.concatenate(values) for values in zip(*parts, strict=True)), log_z)
