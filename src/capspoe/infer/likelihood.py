r"""log Z of a layer with the gate and gaussian neurons, and the likelihood of codes.

With each capsule's mean routing weights the layer is a mixture of RBMs over binary codes, and

.. math:: Z = \sum_j e^{d_j - a_j^T \mu} \int P^*(h \mid j)\, dh / (2 \pi)^{N/2}

(the free energy leaves out a gaussian neuron's constant as well). Annealing from a mixture of
Gaussians to the density of a capsule underestimates its integral (Neal 2001); annealing back from
its samples overestimates it (Grosse et al. 2015), both in expectation. An energy can have modes far
from all data, which neither side finds unless it starts there: so the mixture includes the modes that
an ascent from widespread starts reaches.
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
from capspoe.infer.rbm import BinaryRBM, log_partition_rbm
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.model.prior import CapsulePrior

CHAINS = 64  # of each capsule
STEPS = 60  # of annealing
LEAPS = 8  # of leapfrog in a step
MODES = 24  # starts of the search for modes
ASCENT = 100  # its steps
SAME_MODE = 0.1  # distance below which two modes are one
FAR = 1e3  # distance at which each pixel is 0 or 1
FAR_STREAM = 10  # of random numbers


class LogZ(NamedTuple):
    """Estimates of log Z; the truth is most likely between them."""

    lower: float
    upper: float
    gaps: tuple[float, ...]  # upper - lower of each capsule's integral

    @classmethod
    def of(cls, layer: CapsuleLayer, lower: Float[Tensor, " J"], upper: Float[Tensor, " J"]) -> "LogZ":
        """From estimates of the log integral of each capsule's density of poses."""
        total_lower = torch.logsumexp(cls.summands(layer, lower), 0)
        total_upper = torch.logsumexp(cls.summands(layer, upper), 0)
        return cls(float(total_lower), float(total_upper), tuple((upper - lower).tolist()))

    @classmethod
    def shares(cls, layer: CapsuleLayer, log_integral: Float[Tensor, " J"]) -> Float[Tensor, " J"]:
        """P(j on) under the model, from the log integral of each capsule's density of poses."""
        return torch.softmax(cls.summands(layer, log_integral), 0).to(layer.d)

    @staticmethod
    def summands(layer: CapsuleLayer, log_integral: Float[Tensor, " J"]) -> Float[Tensor, " J"]:
        """log of the part of Z of each capsule."""
        constant = layer.d - (layer.a * layer.mu).sum((1, 2)) - layer.upper[1] / 2 * math.log(2 * math.pi)
        return constant.detach().cpu().double() + log_integral.cpu()


class Mixture(NamedTuple):
    """A mixture of K Gaussians for each capsule."""

    log_weight: Float[Tensor, "J K"]
    mean: Float[Tensor, "J K N"]
    precision: Float[Tensor, "J K N N"]

    def parts(
        self,
        h: Float[Tensor, "J C N"],
    ) -> tuple[Float[Tensor, "J C K"], Float[Tensor, "J C K N"]]:
        """The log density of each component with its weight, and minus its gradient."""
        v = h[:, :, None] - self.mean[:, None]
        pull = torch.einsum("jckn,jknm->jckm", v, self.precision)
        constant = h.shape[-1] * math.log(2 * math.pi)
        volume = self.log_weight + (torch.logdet(self.precision) - constant) / 2
        return volume[:, None] - (pull * v).sum(-1) / 2, pull

    def log_density(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        return torch.logsumexp(self.parts(h)[0], -1)

    def gradient(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        logs, pull = self.parts(h)
        return -torch.einsum("jck,jckn->jcn", torch.softmax(logs, -1), pull)

    def sample(self, chains: int, noise: Noise) -> Float[Tensor, "J C N"]:
        J, _, N = self.mean.shape
        j = torch.arange(J, device=self.mean.device)[:, None]
        # A component for each chain, then a point of it.
        k = noise.choose(0, self.log_weight.exp().repeat_interleave(chains, 0)).view(J, chains)
        factor = torch.linalg.cholesky(torch.linalg.inv(self.precision))[j, k]
        white = noise.normal(1, N).view(J, chains, N)
        return self.mean[j, k] + torch.einsum("jcnm,jcm->jcn", factor, white)


class Modes(NamedTuple):
    """K modes of each capsule's density, the heaviest first.

    log_mass is Laplace's approximation of the integral around each, without (2 pi)^(N/2); -inf for one found twice.
    """

    h: Float[Tensor, "J K N"]
    precision: Float[Tensor, "J K N N"]
    log_mass: Float[Tensor, "J K"]

    @classmethod
    def from_starts(cls, density: PoseDensity, h: Float[Tensor, "J K N"]) -> "Modes":
        """Uphill from each start.

        h <- b - W mu + W P(x = 1 | h) never lowers the density, because all but -|h|^2 / 2 is convex.
        """
        for _ in range(ASCENT):
            h = density.gradient(h) + h
        # The curvature at a mode is I - W diag(p (1 - p)) W'; one capsule at a time, to save memory.
        p = torch.sigmoid(density.logits(h))
        variance = p * (1 - p)
        spreads = []
        for w_NV, variance_KV in zip(density.w_JNV, variance, strict=True):
            spreads.append((w_NV * variance_KV[:, None]) @ w_NV.T)
        values, vectors = torch.linalg.eigh(torch.eye(h.shape[2]).to(h) - torch.stack(spreads))
        # Where the ascent has not reached a mode, the curvature can be 0 or negative: keep it positive.
        values = values.clamp(0.01, 1)
        precision = (vectors * values[..., None, :]) @ vectors.transpose(-2, -1)
        log_mass = density.log_density(h) - values.log().sum(-1) / 2
        # Several starts reach the same mode.
        close = torch.cdist(h, h) < SAME_MODE
        again = torch.tril(close, diagonal=-1).any(2)
        log_mass = log_mass.masked_fill(again, -torch.inf)
        return cls(h, precision, log_mass).sorted()

    def sorted(self) -> "Modes":
        order = self.log_mass.argsort(1, descending=True)
        j = torch.arange(len(order), device=order.device)[:, None]
        return Modes(self.h[j, order], self.precision[j, order], self.log_mass[j, order])


def far_starts(density: PoseDensity, noise: Noise) -> Float[Tensor, "J K N"]:
    """Points so far away that each pixel is 0 or 1: along the principal axes of W, and in random directions.

    A density can have a mode far from all poses, where a pattern of pixels adds up. Starts among the poses miss it.
    """
    J, N, _ = density.w_JNV.shape
    axes = torch.linalg.eigh(density.w_JNV @ density.w_JNV.transpose(1, 2)).eigenvectors.transpose(1, 2)
    random = noise.normal(FAR_STREAM, N).view(J, -1, N)
    return FAR * torch.cat([axes, -axes, random], 1)


def around_modes(density: PoseDensity, prior: CapsulePrior, noise: Noise) -> Mixture:
    """Gaussians at a capsule's modes, with the curvature there, and one at its poses."""
    J, N = density.b_JN.shape
    eye = torch.eye(N).to(density.b_JN)
    # Poses vary as z does, and by the posterior.
    covariance = prior.axes @ prior.axes.transpose(1, 2) + eye
    # From wide starts uphill: the first is the centre, the last has three times the deviation.
    wide = torch.linspace(0, 3, MODES).to(eye)[:, None] * noise.normal(0, N).view(J, MODES, N)
    factor = torch.linalg.cholesky(covariance)
    near = torch.baddbmm(prior.centre[:, None], wide, factor.transpose(1, 2))
    modes = Modes.from_starts(density, torch.cat([near, far_starts(density, noise)], 1))
    mean = torch.cat([modes.h[:, :MODES], prior.centre[:, None]], 1)
    precision = torch.cat([modes.precision[:, :MODES], torch.linalg.inv(covariance)[:, None]], 1)
    # Half of the weight by the components' integrals, half equally.
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
    """log Z from both sides, with each capsule's mean routing weights.

    Parameters
    ----------
    layer : with the gate and gaussian neurons, or without the gate and with binary neurons (an RBM, see `rbm.py`)
    prior : of its poses; an RBM does not need it
    seed : the same seed gives the same estimates
    """
    if BinaryRBM.exists(layer):
        bounds = log_partition_rbm(layer, seed=seed)
        return LogZ(bounds.lower, bounds.upper, (bounds.upper - bounds.lower,))
    return LogZ.of(layer, *log_integrals(layer, prior, seed))


@torch.no_grad()
def log_integrals(
    layer: CapsuleLayer, prior: CapsulePrior, seed: int = 0
) -> tuple[Float[Tensor, " J"], Float[Tensor, " J"]]:
    """log of the integral of each capsule's density of poses, from below and from above."""
    PoseDensity.require(layer, "likelihoods")
    J, N = layer.upper
    p = PoseDensity.of(layer)
    start_index = torch.arange(J * MODES, device=layer.d.device)
    q = around_modes(p, prior, Noise(seed, 0, start_index, layer.d.dtype))
    chain_index = torch.arange(J * CHAINS, device=layer.d.device)
    # Every use of noise has a step of its own.
    steps = itertools.count(1)

    def noise() -> Noise:
        return Noise(seed, next(steps), chain_index, layer.d.dtype)

    def anneal(h: Tensor, times: list[float]) -> tuple[Tensor, Tensor]:
        """Log weights of chains from the first time to the last, and their ends."""
        total = torch.zeros_like(h[..., 0])
        for before, after in itertools.pairwise(times):
            total = total + (after - before) * (p.log_density(h) - q.log_density(h))
            h = hmc(Annealed(q, p, after), h, noise(), LEAPS).h
        return total, h

    def log_mean(weights: Float[Tensor, "J C"]) -> Float[Tensor, " J"]:
        return torch.logsumexp(weights.double(), 1) - math.log(CHAINS)

    # From the mixture to the capsules' densities: the lower estimate.
    times = [k / STEPS for k in range(STEPS + 1)]
    up, ends = anneal(q.sample(CHAINS, noise()), times)
    # The ends, drawn in proportion to their weights, are samples of the densities.
    uniform = noise().uniform(1).view(J, CHAINS, 1)
    drawn = (torch.softmax(up, 1).cumsum(1)[:, None] < uniform).sum(-1).clamp_max(CHAINS - 1)
    h = ends.gather(1, drawn[..., None].expand(-1, -1, N))
    # Further steps take chains with the same start apart.
    for _ in range(STEPS):
        h = hmc(p, h, noise(), LEAPS).h
    # And back from these samples to the mixture: the upper estimate.
    down, _ = anneal(h, times[::-1])
    return log_mean(up), -log_mean(down)


@torch.no_grad()
def log_weight(layer: CapsuleLayer, x: Float[Tensor, "B I M"]) -> Float[Tensor, " B"]:
    """log P(x) + log Z = -F(x), with each capsule's mean routing weights."""
    c = (layer.mean_routing / layer.fan).expand(len(x), -1, -1)
    return -layer.free_energy(x, c)


class Scores(NamedTuple):
    """How likely images are: the sum of `code` and `pixels` is `total`; larger is more typical.

    code       (n,): log P(code), with log Z between its two estimates. The code's numbers in (0, 1)
               stand for units that are drawn with these probabilities; as F is concave, the mean of
               their log P is at least this.
    pixels     (n,): log P(image | code), the cross-entropy that trains the autoencoder, or 0
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
        """The lower of code and pixels, in standard deviations of usual images: either may be odd."""
        if not usual.pixels.any():
            return self.code  # the code is the image

        def standardized(own: np.ndarray, of_usual: np.ndarray) -> np.ndarray:
            return (own - of_usual.mean()) / max(of_usual.std(), 1e-9)

        code = standardized(self.code, usual.code)
        pixels = standardized(self.pixels, usual.pixels)
        return np.minimum(code, pixels)


def log_z_of(network: Network) -> LogZ:
    """log Z of the top layer; kept until the network changes."""
    return cached_on(network, "log_z", lambda: log_partition(network.top, network.prior))


@torch.no_grad()
def score(network: Network, images: Any) -> Scores:
    """The likelihood of each image's code and of its pixels given the code.

    It needs the gate and gaussian neurons, or binary neurons without the gate.
    """
    log_z = log_z_of(network)
    middle = (log_z.lower + log_z.upper) / 2
    code = []
    pixels = []
    capsule = []
    error = []
    for x in network.chunks(images):
        up = network.up(x)
        code.append((log_weight(network.top, up.x).double() - middle).cpu().numpy())
        pixels.append(network.codec.log_likelihood(x, up.code).double().cpu().numpy())
        capsule.append(up.winner.cpu().numpy())
        reconstructed = network.down(up.state, up.c, on=up.winner)
        error.append((reconstructed - x).square().mean((1, 2, 3)).cpu().numpy())
    return Scores(
        np.concatenate(code),
        np.concatenate(pixels),
        np.concatenate(capsule),
        np.concatenate(error),
        log_z,
    )
