r"""Parallel tempering in a capsule's poses, between its density p and a Gaussian q near it.

Between the two lie K further densities, at the times :math:`t_k = k / K`,

.. math:: p_k(h) \propto q(h)^{1 - t_k}\, p(h)^{t_k}, \qquad D(h) = \log p(h) - \log q(h)

Each has chains of its own. Neighbours exchange their states with probability

.. math:: \min\big(1, \exp((t_{k+1} - t_k) (D(h_k) - D(h_{k+1})))\big)

which leaves both densities invariant. q is drawn exactly, so that what starts there and reaches p has forgotten
everything. The same numbers give the integral of p, whose unnormalised densities have

.. math:: \frac{Z_{k+1}}{Z_k} = \langle e^{(t_{k+1} - t_k) D(h)} \rangle_{h \sim p_k}
    = \langle e^{-(t_{k+1} - t_k) D(h)} \rangle_{h \sim p_{k+1}}^{-1}

By Jensen's inequality the logarithm of the first estimate is too low in expectation, that of the second too high.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.infer.chains import PoseDensity, hmc
from capspoe.infer.likelihood import Annealed, Mixture
from capspoe.model.noise import Noise

LEVELS = 8  # densities below that of the capsule, the Gaussian among them
LEAPS = 4  # leapfrog steps of a transition
WIDER = 1.5  # the Gaussian has the chains' covariance times this
FOLLOW_RATE = 0.02  # at which the Gaussian follows the chains
SWEEP_EVERY = 8  # steps between exchanges
EXCHANGE_STREAM, MOVE_STREAM = 310, 320  # streams of random numbers


class Sweep(NamedTuple):
    """Exchanges between all neighbours.

    order       for each level, where its states come from
    lower       estimates of the log integral of each capsule's density p, from below
    upper       and from above
    accepted    share of the exchanges between each level and the next
    """

    order: Int[Tensor, "L J C"]
    lower: Float[Tensor, " J"]
    upper: Float[Tensor, " J"]
    accepted: Float[Tensor, " K"]


def sweep(difference: Float[Tensor, "L J C"], noise: Noise) -> Sweep:
    """Exchange the states of neighbouring levels, given D of all states; L = K + 1 levels, the Gaussian first.

    First the pairs (0, 1), (2, 3), ... then (1, 2), (3, 4), ...; chains of one capsule and number exchange.
    """
    L, J, C = difference.shape
    step = 1 / (L - 1)
    forward = torch.logsumexp((step * difference[:-1]).double(), 2) - math.log(C)
    backward = torch.logsumexp((-step * difference[1:]).double(), 2) - math.log(C)
    order = torch.arange(L, device=difference.device)[:, None, None].repeat(1, J, C)
    log_uniform = noise.uniform(EXCHANGE_STREAM, L - 1).view(J, C, L - 1).log()
    accepted = torch.zeros(L - 1)
    for parity in (0, 1):
        for level in range(parity, L - 1, 2):
            present = difference.gather(0, order)
            swapped = log_uniform[..., level] < step * (present[level] - present[level + 1])
            low, high = order[level].clone(), order[level + 1].clone()
            order[level] = torch.where(swapped, high, low)
            order[level + 1] = torch.where(swapped, low, high)
            accepted[level] = swapped.float().mean()
    return Sweep(order, forward.sum(0), -backward.sum(0), accepted)


@dataclass
class Ladder:
    """Chains between a Gaussian and a density that may change, as a layer does while it learns.

    h             states at the times 0, 1/K, ..., (K - 1)/K; the chains at time 1 are the caller's
    mean          running mean of the chains at time 1, and of the Gaussian
    covariance    the same; that of the Gaussian is `WIDER` times as large
    lower         estimates of the log integral of each capsule's density, from below
    upper         and from above
    """

    h: Float[Tensor, "K J C N"]
    mean: Float[Tensor, "J N"]
    covariance: Float[Tensor, "J N N"]
    lower: Float[Tensor, " J"]
    upper: Float[Tensor, " J"]

    @classmethod
    def begin(
        cls, mean: Float[Tensor, "J N"], covariance: Float[Tensor, "J N N"], noise: Noise, levels: int = LEVELS
    ) -> "Ladder":
        """All chains start in the Gaussian; the noise has J C rows."""
        J = len(mean)
        chains = len(noise.index) // J
        zero = torch.zeros(J, dtype=torch.float64)
        none = mean.new_empty(levels, J, chains, mean.shape[1])
        ladder = cls(none, mean, covariance, zero, zero)
        for level in range(levels):
            ladder.h[level] = ladder.reference().sample(chains, ladder.later(noise, level))
        return ladder

    @staticmethod
    def later(noise: Noise, number: int) -> Noise:
        """Numbers that belong to no step of training: its steps are not negative."""
        return Noise(noise.seed, -1 - number - LEVELS * max(noise.step, 0), noise.index, noise.dtype)

    def reference(self) -> Mixture:
        """The Gaussian q."""
        precision = torch.linalg.inv(WIDER * self.covariance)
        return Mixture(self.mean.new_zeros(len(self.mean), 1), self.mean[:, None], precision[:, None])

    def step(self, p: PoseDensity, h: Float[Tensor, "J C N"], noise: Noise) -> Float[Tensor, "J C N"]:
        """Move the chains of one level, and now and then exchange those of all; returns the chains at time 1."""
        q = self.reference()
        if noise.step % 2 == 1:
            self.move(noise.step // 2 % len(self.h), p, q, noise)
        if noise.step % SWEEP_EVERY == 0:
            h = self.exchange(p, q, h, noise).h
            self.follow(h)
        return h

    def move(self, level: int, p: PoseDensity, q: Mixture, noise: Noise) -> None:
        """A transition of the chains of one level."""
        if level == 0:
            self.h[0] = q.sample(self.h.shape[2], self.later(noise, 0))
        else:
            between = Annealed(q, p, level / len(self.h))
            self.h[level] = hmc(between, self.h[level], noise, LEAPS, MOVE_STREAM).h

    def exchange(self, p: PoseDensity, q: Mixture, h: Float[Tensor, "J C N"], noise: Noise) -> "Exchanged":
        """Exchanges between all levels."""
        states = torch.cat([self.h, h[None]])
        difference = torch.stack([p.log_density(level) - q.log_density(level) for level in states])
        made = sweep(difference, noise)
        states = states.gather(0, made.order[..., None].expand_as(states))
        self.h = states[:-1]
        self.lower = made.lower.cpu()
        self.upper = made.upper.cpu()
        return Exchanged(states[-1], made.accepted)

    def follow(self, h: Float[Tensor, "J C N"]) -> None:
        """Move the Gaussian toward the chains at time 1."""
        mean = torch.lerp(self.mean, h.mean(1), FOLLOW_RATE)
        offset = h - mean[:, None]
        square = torch.einsum("jcn,jcm->jnm", offset, offset) / h.shape[1]
        self.covariance = torch.lerp(self.covariance, square, FOLLOW_RATE)
        self.mean = mean


class Exchanged(NamedTuple):
    """The outcome of exchanges between all levels of a ladder."""

    h: Float[Tensor, "J C N"]  # the chains at time 1
    accepted: Float[Tensor, " K"]  # share of the exchanges between each level and the next
