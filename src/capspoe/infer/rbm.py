r"""log Z of a layer without the gate and with binary neurons: an RBM, once its routing weights are fixed.

Annealed importance sampling (Neal 2001; Salakhutdinov and Murray 2008) between independent visible units, t = 0, and
the layer, t = 1:

.. math:: P_t(x) \propto e^{a^T x} \prod_{jn} (1 + e^{t z_{jn}(x)})

The way up underestimates log Z in expectation of the weights; the way back from its ends overestimates it.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise

CHAINS = 256
STEPS = 1000
HIDDEN, VISIBLE, DRAW = 0, 1, 2  # streams of random numbers


class Bounds(NamedTuple):
    """Estimates of log Z from below and above."""

    lower: float
    upper: float


class BinaryRBM(NamedTuple):
    """A layer with its mean routing weights, in double precision: V = I M visible units and H = J N hidden ones."""

    w_HV: Float[Tensor, "H V"]
    a_V: Float[Tensor, " V"]
    b_H: Float[Tensor, " H"]  # b - W mu

    @staticmethod
    def exists(layer: CapsuleLayer) -> bool:
        """Whether a layer is one: without the gate, and with binary neurons."""
        return not layer.gate.one_on and layer.neurons.name == "binary"

    @classmethod
    def of(cls, layer: CapsuleLayer) -> "BinaryRBM":
        """The RBM of a layer with its mean routing weights."""
        J, N = layer.upper
        w_JNMI = (layer.w_JNMI * layer.mean_routing[:, None, None]).detach().double()
        w_HV = w_JNMI.permute(0, 1, 3, 2).reshape(J * N, -1)
        mu_V = layer.mu.double().flatten()
        return cls(w_HV, layer.a.detach().double().reshape(-1), layer.b.detach().double().reshape(-1) - w_HV @ mu_V)

    def z(self, x: Float[Tensor, "C V"]) -> Float[Tensor, "C H"]:
        return x @ self.w_HV.T + self.b_H

    def step(self, x: Float[Tensor, "C V"], t: float, noise: Noise) -> Float[Tensor, "C V"]:
        """A Gibbs step that leaves P_t invariant."""
        h_mean = torch.sigmoid(t * self.z(x))
        h = (noise.uniform(HIDDEN, h_mean.shape[1]) < h_mean).double()
        x_mean = torch.sigmoid(self.a_V + t * h @ self.w_HV)
        return (noise.uniform(VISIBLE, x_mean.shape[1]) < x_mean).double()


@torch.no_grad()
def log_partition_rbm(layer: CapsuleLayer, chains: int = CHAINS, steps: int = STEPS, seed: int = 0) -> Bounds:
    """log Z of a layer without the gate and with binary neurons.

    Parameters
    ----------
    layer : its routing weights are each capsule's mean ones
    chains : number of chains
    steps : of annealing, and of further Gibbs sampling before the way back
    seed : the same seed gives the same estimates
    """
    rbm = BinaryRBM.of(layer)
    index = torch.arange(chains, device=rbm.a_V.device)
    draws = iter(range(10**9))

    def noise() -> Noise:
        return Noise(seed, next(draws), index, torch.float64)

    def log_ratio(x: Tensor, before: float, after: float) -> Float[Tensor, " C"]:
        z = rbm.z(x)
        return (F.softplus(after * z) - F.softplus(before * z)).sum(1)

    def log_mean(weights: Tensor) -> float:
        return float(torch.logsumexp(weights, 0)) - math.log(chains)

    x = (noise().uniform(VISIBLE, len(rbm.a_V)) < torch.sigmoid(rbm.a_V)).double()
    up = torch.zeros_like(x[:, 0])
    for k in range(steps):
        up = up + log_ratio(x, k / steps, (k + 1) / steps)
        x = rbm.step(x, (k + 1) / steps, noise())

    # The ends, drawn in proportion to their weights, are samples of the layer; then the way back.
    x = x[noise().choose(DRAW, torch.softmax(up, 0).expand(chains, -1))]
    for _ in range(steps):
        x = rbm.step(x, 1.0, noise())
    down = torch.zeros_like(up)
    for k in reversed(range(steps)):
        down = down + log_ratio(x, (k + 1) / steps, k / steps)
        x = rbm.step(x, k / steps, noise())

    independent = float(F.softplus(rbm.a_V).sum()) + len(rbm.b_H) * math.log(2)
    return Bounds(independent + log_mean(up), independent - log_mean(down))
