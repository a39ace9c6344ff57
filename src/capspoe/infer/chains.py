"""The energy of a capsule as a density of its pose, and Hamiltonian Monte Carlo in it.

With gaussian neurons and fixed routing weights the visible units sum out. A chain then moves in the N dimensions of a
pose, needs no codes, and keeps its direction: it crosses a capsule's poses in a few steps, where Gibbs sampling is a
random walk of unit steps.
"""

from typing import NamedTuple, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise

STEP_SIZE = 1.0  # longest of the leapfrog; where the density is concave its curvature is at most 1


class PoseDensity(NamedTuple):
    r"""log P(h | capsule j is on) up to a constant, for the poses of C chains in each of J capsules.

    .. math:: -|h|^2 / 2 + (b_j - W_j \mu)^T h + \sum_d \log(1 + \exp(a_{jd} + W_{jd}^T h))

    W is c W with each capsule's mean routing weights, and mu the centring. V = I M visible units, ordered (M, I).
    """

    w_JNV: Float[Tensor, "J N V"]
    a_JV: Float[Tensor, "J V"]
    b_JN: Float[Tensor, "J N"]  # b - W mu

    @staticmethod
    def exists(layer: CapsuleLayer) -> bool:
        """Whether a layer's poses have such a density: one capsule is on, and its neurons are real numbers."""
        return layer.gate.one_on and layer.neurons.real

    @staticmethod
    def require(layer: CapsuleLayer, what: str) -> None:
        """Raise an InputError that names what needs the density of the poses."""
        if not PoseDensity.exists(layer):
            raise InputError(f"{what} need the gate and gaussian neurons")

    @classmethod
    def of(cls, layer: CapsuleLayer) -> "PoseDensity":
        """The density of a layer with gaussian neurons and the gate."""
        cls.require(layer, "densities of poses")
        J, N = layer.upper
        w_JNV = (layer.w_JNMI * layer.mean_routing[:, None, None]).detach().reshape(J, N, -1)
        a_JV = layer.a.detach().transpose(1, 2).reshape(J, -1)
        b_JN = layer.b.detach() - torch.einsum("jnv,v->jn", w_JNV, layer.mu.T.flatten())
        return cls(w_JNV, a_JV, b_JN)

    def logits(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C V"]:
        """Logits of P(x | h)."""
        return torch.baddbmm(self.a_JV[:, None], h, self.w_JNV)

    def log_density(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]:
        linear = ((self.b_JN[:, None] - h / 2) * h).sum(-1)
        return linear + F.softplus(self.logits(h)).sum(-1)

    def gradient(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]:
        """Gradient of the log density."""
        p = torch.sigmoid(self.logits(h))
        return torch.baddbmm(self.b_JN[:, None] - h, p, self.w_JNV.transpose(1, 2))


class Density(Protocol):
    """What a chain needs: a log density (J, C) up to a constant and its gradient."""

    def log_density(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C"]: ...
    def gradient(self, h: Float[Tensor, "J C N"]) -> Float[Tensor, "J C N"]: ...


class Moved(NamedTuple):
    h: Float[Tensor, "J C N"]
    accepted: Bool[Tensor, "J C"]


def hmc(density: Density, h: Float[Tensor, "J C N"], noise: Noise, leaps: int, stream: int = 200) -> Moved:
    """One transition of Hamiltonian Monte Carlo, which leaves the density invariant.

    Parameters
    ----------
    density : a log density and its gradient
    h : where the chains are
    noise : with J C rows, `Noise.for_batch(J * C, seed, step)`; `run_chains` makes it
    leaps : leapfrog steps
    stream : the first of three streams of the noise
    """
    shape = h.shape[:2]
    step = STEP_SIZE * (0.2 + 0.8 * noise.uniform(stream)).view(*shape, 1)  # short steps free stuck chains
    momentum = noise.normal(stream + 1, h.shape[2]).view_as(h)
    before = density.log_density(h) - momentum.square().sum(-1) / 2
    new, momentum = h, momentum + step / 2 * density.gradient(h)
    for leap in range(leaps):
        new = new + step * momentum
        momentum = momentum + (step if leap < leaps - 1 else step / 2) * density.gradient(new)
    after = density.log_density(new) - momentum.square().sum(-1) / 2
    accepted = noise.uniform(stream + 2).view(shape).log() < after - before
    return Moved(torch.where(accepted[..., None], new, h), accepted)


class Trace(NamedTuple):
    """T transitions of C chains in each of J capsules.

    h              (T, J, C, N): the poses after each transition
    log_density    (T, J, C): of these poses, up to a constant
    accepted       (T, J, C): whether the proposal was accepted
    """

    h: Float[Tensor, "T J C N"]
    log_density: Float[Tensor, "T J C"]
    accepted: Bool[Tensor, "T J C"]

    def r_hat(self) -> Float[Tensor, " J"]:
        """Split R-hat of each capsule's chains; leave out the steps before they have forgotten their start."""
        return split_r_hat(self.h)

    def after(self, step: int) -> "Trace":
        """The trace without its first steps."""
        return Trace(*(values[step:] for values in self))


@torch.no_grad()
def run_chains(
    density: Density, start: Float[Tensor, "J C N"], steps: int = 200, leaps: int = 16, seed: int = 0
) -> Trace:
    """Run Hamiltonian Monte Carlo and keep every state.

    Parameters
    ----------
    density : a log density and its gradient, such as `PoseDensity.of(model.top)`
    start : C poses of each of J capsules
    steps : transitions
    leaps : leapfrog steps of a transition
    seed : the same seed gives the same chains
    """
    index = torch.arange(start.shape[0] * start.shape[1], device=start.device)
    h = start
    states = []
    densities = []
    accepted = []
    for step in range(steps):
        moved = hmc(density, h, Noise(seed, 1 + step, index, start.dtype), leaps)
        h = moved.h
        states.append(h)
        densities.append(density.log_density(h))
        accepted.append(moved.accepted)
    return Trace(torch.stack(states), torch.stack(densities), torch.stack(accepted))


def split_r_hat(draws: Float[Tensor, "T J C N"]) -> Float[Tensor, " J"]:
    """Largest split R-hat of each capsule's pose dimensions over T steps of C chains (Gelman et al. 2013).

    The two halves of a chain count as chains. R-hat compares the variance between their means with that within them;
    converged chains have 1.
    """
    half = len(draws) // 2
    halves = torch.cat([draws[:half], draws[half : 2 * half]], 2)
    within = halves.var(0).mean(1)
    between = halves.mean(0).var(1)
    return (((half - 1) / half * within + between) / within).sqrt().amax(-1)
