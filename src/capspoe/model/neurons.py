r"""Kinds of upper neurons: each is an exponential family given its pre-activation z.

For one neuron with state h,

.. math:: P(h \mid z) \propto \exp(z h - E_0(h)), \qquad A(z) = \log \int \exp(z h - E_0(h)) \, dh

with energy E_0 and log-partition A up to a constant. The mean is A'(z).

A new kind is one class with the methods of `Neurons`, an entry in `NEURONS`, and its name among the choices of the
setting `neurons`.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from capspoe.config import BINARY_RATE
from capspoe.model.noise import Noise


class Neurons(Protocol):
    """The methods of a kind of neuron; all of them are elementwise."""

    name: str
    learning_rate: float  # relative to that of gaussian neurons
    real: bool  # whether h is a real vector with E_0 = |h|^2 / 2, so that the visible units can be summed out

    def mean(self, z: Tensor) -> Tensor:
        """E[h | z] = A'(z)."""
        ...

    def sample(self, mean: Tensor, noise: Noise, stream: int) -> Tensor:
        """Draw h, given its mean."""
        ...

    def log_partition(self, z: Tensor) -> Tensor:
        """A(z)."""
        ...

    def energy(self, h: Tensor) -> Tensor:
        """E_0(h)."""
        ...


class Binary:
    """h in {0, 1}, the paper's neurons: P(h = 1 | z) = sigmoid(z) (Eq. 14)."""

    name = "binary"
    learning_rate = BINARY_RATE
    real = False

    def mean(self, z: Tensor) -> Tensor:
        return torch.sigmoid(z)

    def sample(self, mean: Tensor, noise: Noise, stream: int) -> Tensor:
        return (noise.uniform(stream, *mean.shape[1:]) < mean).to(mean)

    def log_partition(self, z: Tensor) -> Tensor:
        return F.softplus(z)

    def energy(self, h: Tensor) -> Tensor:
        return torch.zeros_like(h)


class Gaussian:
    """Real h with unit variance, h ~ N(z, 1): an exponential-family harmonium (Welling et al. 2005)."""

    name = "gaussian"
    learning_rate = 1.0
    real = True

    def mean(self, z: Tensor) -> Tensor:
        return z

    def sample(self, mean: Tensor, noise: Noise, stream: int) -> Tensor:
        return mean + noise.normal(stream, *mean.shape[1:])

    def log_partition(self, z: Tensor) -> Tensor:
        return z.square() / 2

    def energy(self, h: Tensor) -> Tensor:
        return h.square() / 2


NEURONS: dict[str, Neurons] = {kind.name: kind for kind in (Gaussian(), Binary())}
