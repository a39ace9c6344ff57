r"""Contrastive divergence for a capsule layer (section 3.2 of the paper).

First route, with W fixed. Then, with the routing weights c fixed, run the energy's own Markov chain from the data for
a few steps and compare (Eq. 18):

.. math:: \Delta W_{ij} = c_{ij} (\langle x_i h_j \rangle_{data} - \langle x_i h_j \rangle_{model})

With the gate, only the capsule that was drawn in the positive phase is on. It stays on through the negative phase
unless `regate` draws again.

Where gate targets say which capsule should be on, the gate also learns by cross-entropy. The gradient of
log P(on | x) has the same form, with h_j the mean of capsule j when it is on:

.. math:: \Delta W_{ij} = c_{ij} (1[j = \text{target}] - P(j \text{ on} | x)) \langle x_i h_j \rangle
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe import kernels
from capspoe.core.chains import PoseDensity, hmc
from capspoe.core.checks import check_count, check_tensor
from capspoe.core.gates import mask_off
from capspoe.core.layer import CapsuleLayer
from capspoe.core.noise import Noise

TRAINING_LEAPS = 3  # leapfrog steps of the persistent chains in each update
RECONSTRUCTED = 32  # images of a batch whose reconstruction error is measured
NEGLIGIBLE = 1e-3  # errors of the gate below this have no gradient: skipping them saves most of the work


class Phase(NamedTuple):
    """One end of the chain."""

    x: Float[Tensor, "B I M"]
    mean: Float[Tensor, "B J N"]  # of h; zero for capsules that are off
    on: Int[Tensor, " B"] | None  # None without the gate
    on_probability: Float[Tensor, "B J"]


class Gradients(NamedTuple):
    """Estimates of d log P / d parameter for fixed c, averaged over the batch (ascent direction)."""

    w_JNMI: Float[Tensor, "J N M I"]
    a: Float[Tensor, "*J I M"]
    b: Float[Tensor, "J N"]
    d: Float[Tensor, " J"]


class Info(NamedTuple):
    """Diagnostics of a step."""

    reconstruction: Float[Tensor, ""]  # mean squared difference between the data and the end of the chain
    use: Float[Tensor, " J"]  # mean P(on) of each capsule
    confidence: Float[Tensor, ""]  # mean of the largest P(on)
    routing_entropy: Float[Tensor, ""]  # of c over the axis of its softmax, relative to uniform weights


@dataclass(frozen=True)
class WinnerNoise(Noise):
    """The numbers of one capsule of each image, `on`, among those that `Noise` draws for all capsules (J, N)."""

    on: Tensor = field(kw_only=True)
    capsules: int = field(kw_only=True)

    def uniform(self, stream: int, *shape: int) -> Tensor:
        """What Noise.uniform(stream, *shape[:-1], J, N) has for the capsules that are on; shape ends with N."""
        block_R, n = torch.arange(math.prod(shape[:-1])), torch.arange(shape[-1])
        position = ((block_R * self.capsules)[:, None] + self.on[:, None, None]) * shape[-1] + n
        return self._uniform_at(stream, position.flatten(1)).reshape(-1, *shape)


def hidden_phase(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    z: Float[Tensor, "B J N"],
    noise: Noise,
    stream: int,
    temperature: float = 1.0,
    on: Int[Tensor, " B"] | None = None,
) -> Phase:
    """The hidden side of x. With the gate one capsule is drawn, unless `on` gives it."""
    mean = layer.hidden_mean(z)
    probability = layer.on_probability(z, x, temperature)
    if not layer.gate.exclusive:
        return Phase(x, mean, None, probability)
    if on is None:
        on = noise.choose(stream, probability)
    return Phase(x, mask_off(mean, on), on, probability)


def negative_phase(
    layer: CapsuleLayer,
    positive: Phase,
    c: Float[Tensor, "B J I"] | None,
    noise: Noise,
    k: int = 1,
    temperature: float = 1.0,
    regate: bool = False,
    sample_visible: bool = False,
    sample_hidden: bool = True,
) -> Phase:
    """k steps of the chain h ~ P(h | x), x = P(x | h), with c fixed.

    The visible units hold their probabilities, as in the paper; `sample_visible` draws them, which makes the chain
    exact. Without `sample_hidden` the hidden units hold their means as well, which section 4 of the paper can be read
    to say.
    """
    phase = positive
    for step in range(k):
        stream = 4 * step
        h = phase.mean
        if sample_hidden:
            h = mask_off(layer.sample_hidden(h, noise, stream + 1), phase.on)
        x = layer.visible_mean(h, c, phase.on)
        if sample_visible:
            x = (noise.uniform(stream + 2, *x.shape[1:]) < x).to(x)
        z = layer.preactivation(x, c)
        phase = hidden_phase(layer, x, z, noise, stream + 3, temperature, None if regate else phase.on)
    if layer.gate.exclusive and not regate:  # the same capsule at both ends: no gradient for d
        return phase._replace(on_probability=positive.on_probability)
    return phase


def gradients(
    layer: CapsuleLayer, positive: Phase, negative: Phase, c: Float[Tensor, "B J I"] | None
) -> Gradients:
    """The update of Eq. 18 for the weights, and its counterparts for the biases and the gate."""
    ends = [correlation(layer, phase.x, phase.mean, c) for phase in (positive, negative)]
    return Gradients(
        w_JNMI=(ends[0] - ends[1]) / len(positive.x),
        a=(visible_statistics(layer, positive) - visible_statistics(layer, negative)) / len(positive.x),
        b=(positive.mean - negative.mean).mean(0),
        d=(positive.on_probability - negative.on_probability).mean(0),
    )


def visible_statistics(layer: CapsuleLayer, phase: Phase) -> Float[Tensor, "*J I M"]:
    """Sum over the batch of x, or with the gate of x - mu over the images of each capsule: minus dE/da."""
    if phase.on is None:
        return phase.x.sum(0)
    own = layer.a.new_zeros(layer.a.shape)
    return own.index_add_(0, phase.on, phase.x - layer.mu)


def correlation(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    h: Float[Tensor, "B J N"],
    c: Float[Tensor, "B J I"] | None,
) -> Float[Tensor, "J N M I"]:
    """Sum over the batch of r_ij h_j (x_i - mu_i)^T: minus the derivative of the energy with respect to w."""
    x, r = x - layer.mu, layer.relative(c)
    if r is None:
        return torch.einsum("bjn,bim->jnmi", h, x)
    return torch.stack([torch.einsum("bi,bim,bn->nmi", r[:, j], x, h[:, j]) for j in range(h.shape[1])])


@torch.no_grad()
def step(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    noise: Noise,
    k: int = 1,
    temperature: float = 1.0,
    regate: bool = False,
    sample_visible: bool = False,
    sample_hidden: bool = True,
    on: Int[Tensor, " B"] | None = None,
    gate_loss_weight: float = 0.0,
) -> tuple[Gradients, Info]:
    """Route x, run both phases, and compare them.

    `on` gives the capsule that is on instead of drawing it; `gate_loss_weight` is the weight of the cross-entropy
    with which the gate learns to choose it.
    """
    check_count("k", k)
    if layer.chains is not None:
        return persistent_step(layer, x, noise, temperature, on, gate_loss_weight)
    if layer.gate.exclusive and sample_hidden and not regate:
        fused = kernels.select(x, layer.w_JNMI, layer.a, layer.b)
        if fused:
            return fused_step(fused, layer, x, noise, k, temperature, sample_visible, on, gate_loss_weight)
    c, z = layer(x)
    positive = hidden_phase(layer, x, z, noise, 0, temperature, on)
    if positive.on is not None:
        layer.follow_routing(c, positive.on)
    chain = (k, temperature, regate, sample_visible, sample_hidden)
    negative = negative_phase(layer, positive, c, noise, *chain)
    info = Info(
        reconstruction=(positive.x - negative.x).square().mean(),
        use=positive.on_probability.mean(0),
        confidence=positive.on_probability.amax(-1).mean(),
        routing_entropy=routing_entropy(layer, c),
    )
    found = gradients(layer, positive, negative, c)
    if gate_loss_weight and on is not None and layer.gate.exclusive:
        weight = gate_loss_weight / (temperature * len(x))
        error_BJ = gate_error(on, positive.on_probability, weight)
        error = error_BJ[:, :, None] * layer.hidden_mean(z)
        found.w_JNMI.add_(correlation(layer, x, error, c))
        found.a.add_(torch.einsum("bj,bim->jim", error_BJ, x - layer.mu))
        found.b.add_(error.sum(0))
    return found, info


def gate_error(
    target: Int[Tensor, " B"], probability: Float[Tensor, "B J"], weight: float
) -> Float[Tensor, "B J"]:
    """weight times the gradient of log P(target | x) with respect to the gate's logits."""
    error = F.one_hot(target, probability.shape[1]).to(probability) - probability
    return torch.where(error.abs() < NEGLIGIBLE, 0, weight * error)


def fused_step(
    fused: Any,
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    noise: Noise,
    k: int,
    temperature: float,
    sample_visible: bool,
    on: Int[Tensor, " B"] | None,
    gate_loss_weight: float,
) -> tuple[Gradients, Info]:
    """`step` by the kernels when the winner stays on: only its chain is run, 1/J of the work."""
    sizes = {"B": None, "I": layer.lower[0], "M": layer.lower[1]}
    check_tensor("x", x, sizes, like=layer.w_JNMI, finite=False)
    x_BMI = fused.centred(x, layer.mu)
    c, z, entropy = layer.route_fused(fused, x_BMI)
    probability = layer.on_probability(z, x, temperature)
    target = on if gate_loss_weight else None
    if on is None:
        on = noise.choose(0, probability)
    layer.follow_routing(c, on)
    mean_BN = layer.hidden_mean(z[torch.arange(len(x)), on])
    weights = None if layer.iterations == 1 else c
    drawn = WinnerNoise(noise.seed, noise.step, noise.index, on=on, capsules=layer.upper[0])
    w, a, b, reconstruction = fused.winner_gradients(
        layer.w_JNMI, layer.a, layer.b, layer.mu, x_BMI, mean_BN, on, weights, layer.fan, k, layer.hidden_mean,
        sample=lambda step, mean: layer.neurons.sample(mean, drawn, 4 * step + 1),  # the streams of negative_phase
        uniform=(lambda step: noise.uniform(4 * step + 2, *layer.lower)) if sample_visible else None,
    )  # fmt: skip
    if target is not None:
        error_BJ = gate_error(target, probability, gate_loss_weight / (temperature * len(x)))
        error = error_BJ[:, :, None] * layer.hidden_mean(z)
        fused.add_correlation(error, x_BMI, weights, layer.fan, w)
        a.add_((error_BJ.T @ x_BMI.flatten(1)).view(-1, *x_BMI.shape[1:]).transpose(1, 2))
        b.add_(error.sum(0))
    info = Info(
        reconstruction=reconstruction,
        use=probability.mean(0),
        confidence=probability.amax(-1).mean(),
        routing_entropy=entropy.mean() / math.log(layer.fan) if layer.fan > 1 else x.new_ones(()),
    )
    return Gradients(w, a, b, torch.zeros_like(layer.d)), info


def persistent_step(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    noise: Noise,
    temperature: float,
    on: Int[Tensor, " B"] | None,
    gate_loss_weight: float,
) -> tuple[Gradients, Info]:
    """`step` with persistent chains (Tieleman 2008): the negative phase is an average over chains in each capsule.

    They move by Hamiltonian Monte Carlo with each capsule's mean routing weights. Their codes are summed out:
    x- = P(x | h).
    """
    assert layer.chains is not None
    fused = kernels.select(x, layer.w_JNMI, layer.a, layer.b)
    if fused:
        x_BMI = fused.centred(x, layer.mu)
        c, z, _ = layer.route_fused(fused, x_BMI)
    else:
        c, z = layer(x)
    probability = layer.on_probability(z, x, temperature)
    target, chosen = on if gate_loss_weight else None, noise.choose(0, probability) if on is None else on
    layer.follow_routing(c, chosen)
    on_BJ = F.one_hot(chosen, layer.upper[0]).to(x) / len(x)
    weight_BJ = on_BJ
    if target is not None:
        weight_BJ = on_BJ + gate_error(target, probability, gate_loss_weight / (temperature * len(x)))
    h = weight_BJ[:, :, None] * layer.hidden_mean(z)
    if fused:
        w = torch.zeros_like(layer.w_JNMI)
        fused.add_correlation(h, x_BMI, None if layer.iterations == 1 else c, layer.fan, w)
    else:
        w = correlation(layer, x, h, c)
    a, b = torch.einsum("bj,bim->jim", weight_BJ, x - layer.mu), h.sum(0)

    density, (J, C, _) = PoseDensity.of(layer), layer.chains.shape
    moves = Noise(noise.seed, noise.step, torch.arange(J * C, device=x.device), x.dtype)
    layer.chains.copy_(hmc(density, layer.chains, moves, TRAINING_LEAPS).h)
    p_JCV = torch.sigmoid(density.logits(layer.chains))
    shared = layer.chains * (on_BJ.sum(0) / C)[:, None, None]
    centre = shared.sum(1)[:, :, None] * layer.mu.T.flatten()
    change = torch.baddbmm(-centre, shared.transpose(1, 2), p_JCV).view_as(w)
    w.sub_(change * layer.mean_routing[:, None, None])
    visible = p_JCV.mean(1).view(J, *layer.lower[::-1]).transpose(1, 2) - layer.mu
    a.sub_(visible * on_BJ.sum(0)[:, None, None])
    b.sub_(shared.sum(1))
    few = slice(0, RECONSTRUCTED)
    back = layer.visible_mean(mask_off(layer.hidden_mean(z[few]), chosen[few]), c[few], chosen[few])
    info = Info(
        reconstruction=(x[few] - back).square().mean(),
        use=probability.mean(0),
        confidence=probability.amax(-1).mean(),
        routing_entropy=routing_entropy(layer, c),
    )
    return Gradients(w, a, b, torch.zeros_like(layer.d)), info


def routing_entropy(layer: CapsuleLayer, c: Float[Tensor, "B J I"]) -> Float[Tensor, ""]:
    """Mean entropy of the routing weights, relative to uniform ones."""
    if layer.iterations == 1 or layer.fan == 1:
        return c.new_ones(())
    axis = 2 if layer.normalize == "lower" else 1
    return torch.special.entr(c).sum(axis).mean() / math.log(layer.fan)
