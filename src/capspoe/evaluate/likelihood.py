r"""Likelihood of codes under the top capsule layer with fixed routing weights, by annealed importance sampling.

With fixed c the layer is an RBM (with the gate: a mixture of RBMs) over binary x, and log P(x) = -F(x) - log Z.
Annealing from independent units to the model underestimates log Z (Neal 2001; Salakhutdinov and Murray 2008),
annealing back from samples of the model overestimates it (Burda et al. 2015; Grosse et al. 2015), in expectation.
At inverse temperature t in [0, 1], up to the constants (2 pi)^{1/2} of gaussian neurons,

.. math:: p_t(x, h) \propto \exp\big((1 - t)\, a_0^T x + t\,(a^T x + z(x)^T h + d_{on}) - E_0(h)\big).
"""

import copy
import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.core.gates import mask_off
from capspoe.core.layer import CapsuleLayer
from capspoe.evaluate.data import EvaluationData, Split

X = Float[Tensor, "B I M"]
Z = Float[Tensor, "B J N"]


class Annealed(NamedTuple):
    """The distributions p_t of a layer with uniform routing weights, in double precision."""

    layer: CapsuleLayer
    base_IM: Tensor  # a_0, the logits of the independent units at t = 0

    def log_weight(self, x: X, z: Z, t: float) -> Float[Tensor, " B"]:
        """log p*_t(x), unnormalised, the hidden states summed out."""
        hidden = self.layer.gate.log_evidence(self.layer.log_evidence(t * z), t * self.layer.d)
        return (x * ((1 - t) * self.base_IM + t * self.layer.a)).sum((1, 2)) + hidden

    def log_z_base(self) -> float:
        """log Z at t = 0, where nothing is coupled."""
        x, z = torch.zeros(1, *self.layer.lower), torch.zeros(1, *self.layer.upper)
        return float(F.softplus(self.base_IM).sum() + self.log_weight(x.double(), z.double(), 0.0))

    def gibbs(self, z: Z, t: float, rng: torch.Generator) -> X:
        """h ~ p_t(h | x), then x ~ p_t(x | h), for x given by its z; leaves p_t(x) invariant."""
        layer = self.layer
        noise: Any = SimpleNamespace(  # the interface of core.noise.Noise
            uniform=lambda _, *shape: torch.rand(len(z), *shape, generator=rng, dtype=z.dtype),
            normal=lambda _, *shape: torch.randn(len(z), *shape, generator=rng, dtype=z.dtype),
        )
        h = layer.sample_hidden(layer.hidden_mean(t * z), noise, 0)
        if layer.gate.exclusive:
            on = layer.gate.on_probability(z, layer.log_evidence(t * z), t * layer.d, 1.0)
            h = mask_off(h, torch.multinomial(on, 1, generator=rng)[:, 0])
        model = layer.a + torch.einsum("jnmi,bjn->bim", layer.w_JNMI, h)
        return (noise.uniform(0, *layer.lower) < torch.sigmoid((1 - t) * self.base_IM + t * model)).to(z)

    def anneal(self, x: X, times: list[float], rng: torch.Generator) -> tuple[Tensor, X]:
        """Log weights of chains from samples x at the first time, and their ends. E[w] is the ratio of both Z."""
        total, z = torch.zeros(len(x), dtype=torch.float64), self.layer.preactivation(x, None)
        for t, following in pairwise(times):
            total += self.log_weight(x, z, following) - self.log_weight(x, z, t)
            x = self.gibbs(z, following, rng)
            z = self.layer.preactivation(x, None)
        return total, x


def freeze(layer: CapsuleLayer, c: Float[Tensor, "J I"]) -> CapsuleLayer:
    """The layer with routing weights c multiplied into its weights, in double precision."""
    frozen = copy.deepcopy(layer).cpu().double().requires_grad_(False)
    frozen.iterations = 1
    frozen.w_JNMI.mul_((layer.fan * c.cpu().double())[:, None, None, :])
    return frozen


@torch.no_grad()
def log_z(m: Annealed, data: X, steps: int, chains: int, warm: int, seed: int = 0) -> dict[str, float]:
    """Estimates of log Z.

    lower : by annealing up
    upper : by annealing down from the ends of the upward chains, resampled by weight, after `warm` Gibbs steps
    near_data : the same from data. Such chains seldom leave it, so this is smaller if the model has mass elsewhere.
    """
    rng, base = torch.Generator().manual_seed(seed), m.log_z_base()
    times = [k / steps for k in range(steps + 1)]

    def log_mean(log_weight: Tensor) -> float:
        return float(torch.logsumexp(log_weight, 0)) - math.log(chains)

    def down(x: X) -> float:
        for _ in range(warm):
            x = m.gibbs(m.layer.preactivation(x, None), 1.0, rng)
        return base - log_mean(m.anneal(x, times[::-1], rng)[0])

    start = torch.rand(chains, *m.layer.lower, generator=rng, dtype=torch.float64) < torch.sigmoid(m.base_IM)
    up, ends = m.anneal(start.double(), times, rng)
    drawn = torch.multinomial(torch.softmax(up, 0), chains, replacement=True, generator=rng)
    some = data[torch.randint(len(data), (chains,), generator=rng)]
    return {"lower": base + log_mean(up), "upper": down(ends[drawn]), "near_data": down(some)}


@torch.no_grad()
def likelihood(data: EvaluationData, steps: int, chains: int) -> dict[str, Any]:
    """Nats per code of a test image, its units drawn as 0 or 1 once, and those of independent units."""
    network, rng = data.network, torch.Generator().manual_seed(data.seed)

    def inputs(split: Split) -> X:
        codes = torch.from_numpy(split.codes).float().to(network.device)
        return network.layer_input(codes, len(network.layers) - 1)

    def binary(x: X) -> X:
        return (torch.rand(x.shape, generator=rng, dtype=torch.float64) < x.cpu().double()).double()

    train, test = binary(inputs(data.train.spread(5000))), binary(inputs(data.test.spread(2000)))
    some = inputs(data.train.spread(2000))
    c = torch.stack([network.top(x).c.cpu().double().sum(0) for x in some.split(256)]).sum(0) / len(some)
    m = Annealed(freeze(network.top, c), torch.logit(train.mean(0), eps=0.01))
    estimates = log_z(m, train, steps, chains, min(steps, 200), data.seed)
    unnormalised = float(m.log_weight(test, m.layer.preactivation(test, None), 1.0).mean())
    independent = (test * m.base_IM).sum((1, 2)).mean() - F.softplus(m.base_IM).sum()
    return {
        **{f"log_z_{name}": value for name, value in estimates.items()},
        "log_p_lower": unnormalised - estimates["upper"],
        "log_p_upper": unnormalised - estimates["lower"],
        "log_p_independent": float(independent),
        "units": m.base_IM.numel(),
    }
