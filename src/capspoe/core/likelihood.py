r"""log Z of a layer with the gate and gaussian neurons, and the likelihood of codes.

With each capsule's mean routing weights the layer is a mixture of RBMs over binary codes, and

.. math:: Z = \sum_j e^{d_j - a_j^T \mu} \int P^*(h \mid j)\, dh / (2 \pi)^{N/2}

(the free energy leaves out a gaussian neuron's constant as well). Annealing from a Gaussian to a capsule's density
underestimates its integral (Neal 2001); annealing back from its samples overestimates it (Grosse et al. 2015), both
in expectation. In the N dimensions of a pose they meet.
"""

import itertools
import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.core.chains import PoseDensity, hmc
from capspoe.core.layer import CapsuleLayer
from capspoe.core.noise import Noise
from capspoe.core.prior import CapsulePrior
from capspoe.errors import InputError

CHAINS, STEPS, LEAPS = 100, 100, 4


class LogZ(NamedTuple):
    """Estimates of log Z; the truth is most likely between them."""

    lower: float
    upper: float


class Annealed(NamedTuple):
    """q^(1 - t) p^t, where q is a Gaussian for each capsule, in coordinates v that make q standard normal."""

    density: PoseDensity
    centre: Float[Tensor, "J N"]
    factor: Float[Tensor, "J N N"]
    t: float

    def pose(self, v: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        return torch.baddbmm(self.centre[:, None], v, self.factor.transpose(1, 2))

    def log_ratio(self, v: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        """log p / q, with q normalised and p as `PoseDensity` has it."""
        volume = self.factor.diagonal(dim1=1, dim2=2).log().sum(-1)[:, None]
        log_q = -v.square().sum(-1) / 2 - v.shape[-1] / 2 * math.log(2 * math.pi)
        return self.density.log_density(self.pose(v)) + volume - log_q

    def log_density(self, v: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        return self.t * self.log_ratio(v) - v.square().sum(-1) / 2

    def gradient(self, v: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        return self.t * torch.bmm(self.density.gradient(self.pose(v)), self.factor) - (1 - self.t) * v


@torch.no_grad()
def log_partition(layer: CapsuleLayer, prior: CapsulePrior, seed: int = 0) -> LogZ:
    """log Z from both sides; the prior's Gaussians are where annealing starts."""
    if not layer.gate.exclusive or layer.neurons.name != "gaussian":
        raise InputError("likelihoods need the gate and gaussian neurons")
    J, N = layer.upper
    eye = torch.eye(N, dtype=layer.d.dtype, device=layer.d.device)
    covariance = prior.axes @ prior.axes.transpose(1, 2) + eye  # of h: poses vary as z does, and by the posterior
    start = Annealed(PoseDensity.of(layer), prior.centre, torch.linalg.cholesky(covariance), 0.0)
    index = torch.arange(J * CHAINS, device=layer.d.device)
    step = 0

    def noise() -> Noise:
        nonlocal step
        step += 1
        return Noise(seed, step, index, layer.d.dtype)

    def anneal(v: Tensor, times: list[float]) -> tuple[Tensor, Tensor]:
        """Log weights of chains from the first time to the last, and their ends."""
        total = torch.zeros_like(v[..., 0])
        for before, after in itertools.pairwise(times):
            total = total + (after - before) * start.log_ratio(v)
            v = hmc(start._replace(t=after), v, noise(), LEAPS).h
        return total, v

    def log_mean(weights: Float[Tensor, "J C"]) -> Float[Tensor, " J"]:
        return torch.logsumexp(weights.double(), 1) - math.log(CHAINS)

    times = [k / STEPS for k in range(STEPS + 1)]
    up, ends = anneal(noise().normal(0, N).view(J, CHAINS, N), times)
    uniform = noise().uniform(1).view(J, CHAINS, 1)
    drawn = (torch.softmax(up, 1).cumsum(1)[:, None] < uniform).sum(-1).clamp_max(CHAINS - 1)
    v = ends.gather(1, drawn[..., None].expand(-1, -1, N))
    for _ in range(STEPS):  # so that chains with the same start are apart
        v = hmc(start._replace(t=1.0), v, noise(), LEAPS).h
    down, _ = anneal(v, times[::-1])
    constant = layer.d - (layer.a * layer.mu).sum((1, 2)) - N / 2 * math.log(2 * math.pi)
    return LogZ(*(float(torch.logsumexp(constant.double() + one, 0)) for one in (log_mean(up), -log_mean(down))))


@torch.no_grad()
def log_weight(layer: CapsuleLayer, x: Float[Tensor, "B I M"]) -> Float[Tensor, " B"]:
    """log P(x) + log Z = -F(x), with each capsule's mean routing weights."""
    c = (layer.mean_routing / layer.fan).expand(len(x), -1, -1)
    return -layer.free_energy(x, c)
