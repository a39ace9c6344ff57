r"""The likelihood of codes under the top capsule layer with its routing frozen, by annealed importance sampling.

With fixed c the layer is an RBM (with the gate: a mixture of RBMs) over binary x, and

.. math:: \log P(x) = -F(x) - \log Z .

log Z is bracketed: annealing from independent units to the model underestimates it (Neal 2001; Salakhutdinov
and Murray 2008), annealing back from samples of the model overestimates it (Burda et al. 2015; Grosse et al.
2015), both in expectation. The distribution at inverse temperature t in [0, 1] is

.. math:: p_t(x, h) \propto \exp\big((1 - t)\, a_0^T x + t\,(a^T x + z(x)^T h + d_{on}) [- |h|^2 / 2]\big).

Constants of gaussian neurons, (2 pi)^{1/2} each, are left out of F and Z alike.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.capsules import CapsuleLayer
from capspoe.codes import code_batch
from capspoe.data.images import even_choice
from capspoe.model import CapsulePoE


class Frozen(NamedTuple):
    """A layer with c multiplied into its weights; x is flat, V = I M."""

    w_JNV: Tensor
    a_V: Tensor
    b_JN: Tensor  # with the centring: z = w x + b
    d_J: Tensor
    base_V: Tensor  # a_0, the logits of the independent units that annealing starts from
    binary: bool
    gated: bool


class Bracket(NamedTuple):
    """Estimates of log Z from below and from above, and from the neighbourhood of the data."""

    lower: float
    upper: float
    near_data: float  # as `upper`, by chains that begin at data: less where the model has more mass elsewhere


def freeze(
    layer: CapsuleLayer, c: Float[Tensor, "1 J I"] | None, mean_x: Float[Tensor, "I M"] | None = None
) -> Frozen:
    """The layer with routing weights c (uniform if None), in double precision."""
    w, a, b, d, mu = (
        tensor.detach().cpu().double() for tensor in (layer.w_JNMI, layer.a, layer.b, layer.d, layer.mu)
    )
    if c is not None:
        w = w * (layer.fan * c[0].cpu().double())[:, None, None, :]
    J, N = layer.upper
    w_JNV = w.permute(0, 1, 3, 2).reshape(J, N, -1)
    mean = torch.full_like(mu, 0.5) if mean_x is None else mean_x.double()
    return Frozen(
        w_JNV=w_JNV,
        a_V=a.reshape(-1),
        b_JN=b - w_JNV @ mu.reshape(-1),
        d_J=d,
        base_V=torch.logit(mean.reshape(-1), eps=0.01),
        binary=layer.neurons == "binary",
        gated=layer.gated,
    )


def fields(m: Frozen, x: Float[Tensor, "B V"]) -> Float[Tensor, "B J N"]:
    J, N, V = m.w_JNV.shape
    return (x @ m.w_JNV.reshape(J * N, V).T).reshape(-1, J, N) + m.b_JN


def evidence(m: Frozen, z: Float[Tensor, "B J N"], t: float) -> Float[Tensor, "B J"]:
    """log of the sum of exp(t z.h) over the states of each capsule."""
    return F.softplus(t * z).sum(-1) if m.binary else (t * z).square().sum(-1) / 2


def log_weight(
    m: Frozen, x: Float[Tensor, "B V"], z: Float[Tensor, "B J N"], t: float
) -> Float[Tensor, " B"]:
    """log p*_t(x), the hidden states summed out."""
    said = evidence(m, z, t)
    hidden = torch.logsumexp(said + t * m.d_J, -1) if m.gated else said.sum(-1)
    return x @ ((1 - t) * m.base_V + t * m.a_V) + hidden


def log_z_base(m: Frozen) -> float:
    """log Z at t = 0, where nothing is coupled."""
    J, N, _ = m.w_JNV.shape
    capsules = 1 if m.gated else J
    hidden = N * capsules * math.log(2) if m.binary else 0.0
    return float(F.softplus(m.base_V).sum()) + hidden + (math.log(J) if m.gated else 0.0)


def gibbs(m: Frozen, z: Float[Tensor, "B J N"], t: float, rng: torch.Generator) -> Float[Tensor, "B V"]:
    """h ~ p_t(h | x), then x ~ p_t(x | h), for x given by its z: leaves p_t(x) as it is."""
    J, N, V = m.w_JNV.shape
    if m.binary:
        h = (torch.rand(z.shape, generator=rng, dtype=z.dtype) < torch.sigmoid(t * z)).double()
    else:
        h = t * z + torch.randn(z.shape, generator=rng, dtype=z.dtype)
    if m.gated:
        on = torch.multinomial(torch.softmax(evidence(m, z, t) + t * m.d_J, -1), 1, generator=rng)[:, 0]
        h = h * F.one_hot(on, J)[:, :, None]
    logits = (1 - t) * m.base_V + t * (m.a_V + h.reshape(-1, J * N) @ m.w_JNV.reshape(J * N, V))
    return (torch.rand(logits.shape, generator=rng, dtype=z.dtype) < torch.sigmoid(logits)).double()


@torch.no_grad()
def anneal_up(m: Frozen, steps: int, chains: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Chains from independent units to the model: importance weights log w with E[w] = Z / Z_0, and their ends."""
    x = (
        torch.rand(chains, len(m.base_V), generator=rng, dtype=torch.float64) < torch.sigmoid(m.base_V)
    ).double()
    total, z = torch.zeros(chains, dtype=torch.float64), fields(m, x)
    for k in range(steps):
        t, following = k / steps, (k + 1) / steps
        total += log_weight(m, x, z, following) - log_weight(m, x, z, t)
        x = gibbs(m, z, following, rng)
        z = fields(m, x)
    return total, x


@torch.no_grad()
def anneal_down(m: Frozen, steps: int, x: Float[Tensor, "chains V"], rng: torch.Generator) -> Tensor:
    """The same backwards, from samples x of the model; E[w] = Z_0 / Z when they are exact."""
    total, z = torch.zeros(len(x), dtype=torch.float64), fields(m, x)
    for k in range(steps, 0, -1):
        t, following = k / steps, (k - 1) / steps
        total += log_weight(m, x, z, following) - log_weight(m, x, z, t)
        x = gibbs(m, z, following, rng)
        z = fields(m, x)
    return total


def log_z(
    m: Frozen, data: Float[Tensor, "B V"], steps: int, chains: int, warm: int, seed: int = 0
) -> Bracket:
    """log Z by annealing up, and down again from samples of the model.

    These are the ends of the chains up, drawn by their weights, after `warm` Gibbs steps. Chains that begin at
    data instead seldom leave it, so they tell only of the mass around it: `near_data`.
    """
    rng = torch.Generator().manual_seed(seed)
    up, ends = anneal_up(m, steps, chains, rng)
    drawn = torch.multinomial(torch.softmax(up, 0), chains, replacement=True, generator=rng)
    base, size = log_z_base(m), math.log(chains)

    def from_above(x: Tensor) -> float:
        for _ in range(warm):
            x = gibbs(m, fields(m, x), 1.0, rng)
        return base - (float(torch.logsumexp(anneal_down(m, steps, x, rng), 0)) - size)

    some = data[torch.randint(len(data), (chains,), generator=rng)].double()
    return Bracket(base + float(torch.logsumexp(up, 0)) - size, from_above(ends[drawn]), from_above(some))


@torch.no_grad()
def mean_routing(model: CapsulePoE, codes: np.ndarray, count: int = 2000) -> Tensor | None:
    """The routing weights to freeze: their mean over training images; None for uniform ones."""
    if model.top.iterations == 1:
        return None
    index = even_choice(len(codes), count)
    total = torch.zeros(1, model.top.upper[0], model.top.lower[0], dtype=torch.float64)
    for part in np.array_split(index, max(1, len(index) // 256)):
        x = model.lift(code_batch(codes, part, model.device))
        total += model.top(x).c.double().sum(0, keepdim=True).cpu()
    return total / len(index)


@torch.no_grad()
def likelihood(
    model: CapsulePoE, train_codes: np.ndarray, test_codes: np.ndarray, steps: int, chains: int, seed: int = 0
) -> dict[str, Any]:
    """Nats per test code, its units drawn as 0 or 1 once, beside independent units with the training mean."""
    rng = torch.Generator().manual_seed(seed)

    def drawn(codes: np.ndarray, count: int) -> Tensor:
        index = even_choice(len(codes), count)
        x = model.lift(code_batch(codes, index, model.device)).flatten(1).cpu().double()
        return (torch.rand(x.shape, generator=rng, dtype=x.dtype) < x).double()

    train, test = drawn(train_codes, 5000), drawn(test_codes, 2000)
    c = mean_routing(model, train_codes)
    m = freeze(model.top, c, train.mean(0).reshape(model.top.lower))
    bracket = log_z(m, train, steps, chains, warm=min(steps, 200), seed=seed)
    unnormalised = float(log_weight(m, test, fields(m, test), 1.0).mean())
    independent = float((test @ m.base_V).mean() - F.softplus(m.base_V).sum())
    return {
        "what": "nats per code of the top layer's input, with routing frozen at its mean over training images; "
        "not comparable with likelihoods of pixels",
        "log_z_lower": bracket.lower,
        "log_z_upper": bracket.upper,
        "log_z_near_data": bracket.near_data,
        "log_p_lower": unnormalised - bracket.upper,
        "log_p_upper": unnormalised - bracket.lower,
        "log_p_independent": independent,
        "units": len(m.a_V),
        "steps": steps,
        "chains": chains,
    }
