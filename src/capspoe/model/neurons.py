r"""Kinds of upper neurons, each an exponential family given its pre-activation z.

A kind is one class below, with the same elementwise methods; `NEURONS` lists them. For one neuron with state h,

.. math:: P(h \mid z) \propto \exp(z h - E_0(h)), \qquad A(z) = \log \int \exp(z h - E_0(h)) \, dh

with energy E_0 and log-partition A up to a constant. The mean is A'(z).
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.noise import Noise


class Binary:
    """h in {0, 1}, the paper's neurons: P(h = 1 | z) = sigmoid(z) (Eq. 14)."""

    name = "binary"

    def mean(self, z: Tensor) -> Tensor:
        """E[h | z]."""
        return torch.sigmoid(z)

    def natural(self, mean: Tensor) -> Tensor:
        """The z with this mean."""
        return torch.logit(mean, eps=1e-6)

    def sample(self, mean: Tensor, noise: Noise, stream: int) -> Tensor:
        """Draw h, given its mean."""
        return (noise.uniform(stream, *mean.shape[1:]) < mean).to(mean)

    def log_partition(self, z: Tensor) -> Tensor:
        """A(z)."""
        return F.softplus(z)

    def energy(self, h: Tensor) -> Tensor:
        """E_0(h)."""
        return torch.zeros_like(h)


class Gaussian:
    """Real h with unit variance, h ~ N(z, 1): an exponential-family harmonium (Welling et al. 2005)."""

    name = "gaussian"

    def mean(self, z: Tensor) -> Tensor:
        return z

    def natural(self, mean: Tensor) -> Tensor:
        return mean

    def sample(self, mean: Tensor, noise: Noise, stream: int) -> Tensor:
        return mean + noise.normal(stream, *mean.shape[1:])

    def log_partition(self, z: Tensor) -> Tensor:
        return z.square() / 2

    def energy(self, h: Tensor) -> Tensor:
        return h.square() / 2


NEURONS: dict[str, Gaussian | Binary] = {kind.name: kind for kind in (Gaussian(), Binary())}
