r"""log Z of a layer with the gate and gaussian neurons, and the likelihood of codes.

With each capsule's mean routing weights the layer is a mixture of RBMs over binary codes, and

.. math:: Z = \sum_j e^{d_j - a_j^T \mu} \int P^*(h \mid j)\, dh / (2 \pi)^{N/2}

(the free energy leaves out a gaussian neuron's constant as well). Annealing from a mixture of Gaussians to the
density of a capsule underestimates its integral (Neal 2001); annealing back from its samples overestimates it (Grosse
et al. 2015), both in expectation. An energy can have modes far from all data, which neither side finds unless it
starts there: so the mixture includes the modes that an ascent from widespread starts reaches.
"""

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.infer.cache import cached_on
from capspoe.infer.chains import PoseDensity, hmc
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.model.prior import CapsulePrior

CHAINS, STEPS, LEAPS = 64, 60, 8
MODES, ASCENT = 24, 100  # starts of the search for modes, and its steps


class LogZ(NamedTuple):
    """Estimates of log Z; the truth is most likely between them."""

    lower: float
    upper: float
    gaps: tuple[float, ...]  # upper - lower of each capsule's integral


class Mixture(NamedTuple):
    """A mixture of K Gaussians for each capsule."""

    log_weight: Float[Tensor, "J K"]
    mean: Float[Tensor, "J K N"]
    precision: Float[Tensor, "J K N N"]

    def parts(self, h: Float[Tensor, "J C N"]) -> tuple[Float[Tensor, "J C K"], Float[Tensor, "J C K N"]]:
        """The log density of each component with its weight, and minus its gradient."""
        v = h[:, :, None] - self.mean[:, None]
        pull = torch.einsum("jckn,jknm->jckm", v, self.precision)
        volume = self.log_weight + (torch.logdet(self.precision) - h.shape[-1] * math.log(2 * math.pi)) / 2
        return volume[:, None] - (pull * v).sum(-1) / 2, pull

    def log_density(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        return torch.logsumexp(self.parts(h)[0], -1)

    def gradient(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        logs, pull = self.parts(h)
        return -torch.einsum("jck,jckn->jcn", torch.softmax(logs, -1), pull)

    def sample(self, chains: int, noise: Noise) -> Float[Tensor, "J C N"]:
        (J, _, N), own = self.mean.shape, torch.arange(len(self.mean), device=self.mean.device)[:, None]
        k = noise.choose(0, self.log_weight.exp().repeat_interleave(chains, 0)).view(J, chains)
        factor = torch.linalg.cholesky(torch.linalg.inv(self.precision))[own, k]
        return self.mean[own, k] + torch.einsum("jcnm,jcm->jcn", factor, noise.normal(1, N).view(J, chains, N))


def around_modes(density: PoseDensity, prior: CapsulePrior, noise: Noise) -> Mixture:
    """Gaussians at a capsule's modes, with the curvature there, and one at its poses; half of the weight by integral.

    h <- b - W mu + W P(x = 1 | h) never lowers the density, because all but -|h|^2 / 2 is convex.
    """
    J, N = density.b_JN.shape
    eye = torch.eye(N).to(density.b_JN)
    covariance = prior.axes @ prior.axes.transpose(1, 2) + eye  # poses vary as z does, and by the posterior
    wide = torch.linspace(0, 3, MODES).to(eye)[:, None] * noise.normal(0, N).view(J, MODES, N)
    h = torch.baddbmm(prior.centre[:, None], wide, torch.linalg.cholesky(covariance).transpose(1, 2))
    for _ in range(ASCENT):
        h = density.gradient(h) + h
    p = torch.sigmoid(density.logits(h))
    spread = torch.stack([(w * q[:, None]) @ w.T for w, q in zip(density.w_JNV, p * (1 - p), strict=True)])
    values, vectors = torch.linalg.eigh(eye - spread)
    precision = (vectors * values.clamp(0.01, 1)[..., None, :]) @ vectors.transpose(-2, -1)
    mean = torch.cat([h, prior.centre[:, None]], 1)
    precision = torch.cat([precision, torch.linalg.inv(covariance)[:, None]], 1)
    share = torch.softmax(density.log_density(mean) - torch.logdet(precision) / 2, 1)
    return Mixture((share / 2 + 1 / (2 * share.shape[1])).log(), mean, precision)


class Annealed(NamedTuple):
    """q^(1 - t) p^t; nowhere is its curvature above 1, which suits the steps of `hmc`."""

    q: Mixture
    p: PoseDensity
    t: float

    def log_density(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        return self.t * self.p.log_density(h) + (1 - self.t) * self.q.log_density(h)

    def gradient(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        return self.t * self.p.gradient(h) + (1 - self.t) * self.q.gradient(h)


@torch.no_grad()
def log_partition(layer: CapsuleLayer, prior: CapsulePrior, seed: int = 0) -> LogZ:
    """log Z from both sides."""
    PoseDensity.require(layer, "likelihoods")
    J, N = layer.upper
    p = PoseDensity.of(layer)
    found = torch.arange(J * MODES, device=layer.d.device)
    q = around_modes(p, prior, Noise(seed, 0, found, layer.d.dtype))
    index = torch.arange(J * CHAINS, device=layer.d.device)
    steps = itertools.count(1)

    def noise() -> Noise:
        return Noise(seed, next(steps), index, layer.d.dtype)

    def anneal(h: Tensor, times: list[float]) -> tuple[Tensor, Tensor]:
        """Log weights of chains from the first time to the last, and their ends."""
        total = torch.zeros_like(h[..., 0])
        for before, after in itertools.pairwise(times):
            total = total + (after - before) * (p.log_density(h) - q.log_density(h))
            h = hmc(Annealed(q, p, after), h, noise(), LEAPS).h
        return total, h

    def log_mean(weights: Float[Tensor, "J C"]) -> Float[Tensor, " J"]:
        return torch.logsumexp(weights.double(), 1) - math.log(CHAINS)

    times = [k / STEPS for k in range(STEPS + 1)]
    up, ends = anneal(q.sample(CHAINS, noise()), times)
    uniform = noise().uniform(1).view(J, CHAINS, 1)
    drawn = (torch.softmax(up, 1).cumsum(1)[:, None] < uniform).sum(-1).clamp_max(CHAINS - 1)
    h = ends.gather(1, drawn[..., None].expand(-1, -1, N))
    for _ in range(STEPS):  # so that chains with the same start are apart
        h = hmc(p, h, noise(), LEAPS).h
    down, _ = anneal(h, times[::-1])
    constant = layer.d - (layer.a * layer.mu).sum((1, 2)) - N / 2 * math.log(2 * math.pi)
    lower, upper = log_mean(up), -log_mean(down)
    low, high = (float(torch.logsumexp(constant.double() + one, 0)) for one in (lower, upper))
    return LogZ(low, high, tuple((upper - lower).tolist()))


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

    def weaker(self, usual: "Scores") -> np.ndarray:
        """The lower of code and pixels, each in standard deviations of usual images; either may be odd."""
        pairs = ((self.code, usual.code), (self.pixels, usual.pixels))
        return np.minimum(*((own - of.mean()) / max(of.std(), 1e-9) for own, of in pairs))


def log_z_of(network: Network) -> LogZ:
    """log Z of the top layer; kept until the network changes."""
    return cached_on(network, "log_z", lambda: log_partition(network.top, network.prior))


@torch.no_grad()
def score(network: Network, images: Any) -> Scores:
    """The likelihood of each image's code and of its pixels given the code; needs the gate and gaussian neurons."""
    log_z, parts = log_z_of(network), []
    middle = (log_z.lower + log_z.upper) / 2
    for x in network.chunks(images):
        up = network.up(x)
        given = network.codec.log_likelihood(x, up.code)
        miss = (network.down(up.state, up.c, on=up.winner) - x).square().mean((1, 2, 3))
        found = (log_weight(network.top, up.x).double() - middle, given.double(), up.winner, miss)
        parts.append([t.cpu().numpy() for t in found])
    code, pixels, capsule, error = (np.concatenate(values) for values in zip(*parts, strict=True))
    return Scores(code, pixels, capsule, error, log_z)
