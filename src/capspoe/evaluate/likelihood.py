r"""Likelihood of codes under the top capsule layer with fixed routing weights, by annealed importance sampling.

With fixed c the layer is an RBM (with the gate: a mixture of RBMs) over binary x, and log P(x) = -F(x) - log Z.
Annealing from independent units to the model underestimates log Z (Neal 2001; Salakhutdinov and Murray 2008),
annealing back from samples of the model overestimates it (Burda et al. 2015; Grosse et al. 2015), in expectation.
At inverse temperature t in [0, 1], up to the constants (2 pi)^{1/2} of gaussian neurons,

.. math:: p_t(x, h) \propto \exp\big((1 - t)\, a_0^T x + t\,(a^T x + z(x)^T h) - E_0(h)\big),

where with the gate a^T x is a_j^T (x - mu) + d_j of the capsule that is on.
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

    def log_evidence(self, x: X, z: Z, t: float) -> Float[Tensor, "B J"]:
        """log of the sum of p*_t(x, h) over the states of each capsule, without a_0 and a shared visible bias."""
        layer = self.layer
        evidence = layer.neurons.log_partition(t * z).sum(-1)
        return (
            evidence + t * (x - layer.mu).flatten(1) @ layer.a.flatten(1).T
            if layer.gate.exclusive
            else evidence
        )

    def log_weight(self, x: X, z: Z, t: float) -> Float[Tensor, " B"]:
        """log p*_t(x), unnormalised, the hidden states summed out."""
        layer = self.layer
        bias = (1 - t) * self.base_IM + (0 if layer.gate.exclusive else t * layer.a)
        return (x * bias).sum((1, 2)) + layer.gate.log_evidence(self.log_evidence(x, z, t), t * layer.d)

    def log_z_base(self) -> float:
        """log Z at t = 0, where nothing is coupled."""
        x, z = torch.zeros(1, *self.layer.lower), torch.zeros(1, *self.layer.upper)
        return float(F.softplus(self.base_IM).sum() + self.log_weight(x.double(), z.double(), 0.0))

    def gibbs(self, x: X, z: Z, t: float, rng: torch.Generator) -> X:
        """h ~ p_t(h | x), then x ~ p_t(x | h); leaves p_t(x) invariant."""
        layer = self.layer
        noise: Any = SimpleNamespace(  # the interface of core.noise.Noise
            uniform=lambda _, *shape: torch.rand(len(z), *shape, generator=rng, dtype=z.dtype),
            normal=lambda _, *shape: torch.randn(len(z), *shape, generator=rng, dtype=z.dtype),
        )
        h, on = layer.sample_hidden(layer.hidden_mean(t * z), noise, 0), None
        if layer.gate.exclusive:
            probability = layer.gate.on_probability(z, self.log_evidence(x, z, t), t * layer.d, 1.0)
            on = torch.multinomial(probability, 1, generator=rng)[:, 0]
            h = mask_off(h, on)
        model = (layer.a if on is None else layer.a[on]) + torch.einsum("jnmi,bjn->bim", layer.w_JNMI, h)
        return (noise.uniform(0, *layer.lower) < torch.sigmoid((1 - t) * self.base_IM + t * model)).to(z)

    def anneal(self, x: X, times: list[float], rng: torch.Generator) -> tuple[Tensor, X]:
        """Log weights of chains from samples x at the first time, and their ends. E[w] is the ratio of both Z."""
        total, z = torch.zeros(len(x), dtype=torch.float64), self.layer.preactivation(x, None)
        for t, following in pairwise(times):
            total += self.log_weight(x, z, following) - self.log_weight(x, z, t)
            x = self.gibbs(x, z, following, rng)
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
            x = m.gibbs(x, m.layer.preactivation(x, None), 1.0, rng)
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
    top = network.top
    if top.gate.exclusive:
        c = top.mean_routing.cpu().double() / top.fan
    else:
        parts = [top(x).c.cpu().double().sum(0) for x in inputs(data.train.spread(2000)).split(256)]
        c = torch.stack(parts).sum(0) / min(2000, len(data.train.codes))
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
