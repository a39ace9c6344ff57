r"""Contrastive divergence for a capsule layer (section 3.2 of the paper).

First route, with the weights fixed. Then, with the routing weights c fixed, follow the energy's own Markov
chain from the data for a few steps and compare (Eq. 18):

.. math:: \Delta W_{ij} = c_{ij} (\langle x_i h_j \rangle_{data} - \langle x_i h_j \rangle_{model})

With the gate, the capsule drawn in the positive phase is the only one that is on. It stays on through the
negative phase unless `regate` draws anew.

Where it is known which capsule is to be on, the gate can be taught to choose it. With h_j the mean that capsule j
has when it is on, the gradient of log P(on | x) has the same form:

.. math:: \Delta W_{ij} = c_{ij} (1[j \text{ is to be on}] - P(j \text{ on} | x)) \langle x_i h_j \rangle
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe import kernels
from capspoe.capsules import CapsuleLayer
from capspoe.noise import Noise
from capspoe.validate import check_count, check_tensor

SURE = 1e-3  # a gate that is wrong by less than this has nothing to learn


class Phase(NamedTuple):
    """One end of the chain: visible state, means of the hidden states, and which capsules are on."""

    x: Float[Tensor, "B I M"]
    mean: Float[Tensor, "B J N"]  # of h, zero for capsules that are off
    on: Int[Tensor, " B"] | None  # None without the gate
    on_probability: Float[Tensor, "B J"]


class Gradients(NamedTuple):
    """Estimates of d log P / d parameter for fixed c, averaged over the batch: add them to climb."""

    w_JNMI: Float[Tensor, "J N M I"]
    a: Float[Tensor, "I M"]
    b: Float[Tensor, "J N"]
    d: Float[Tensor, " J"]


class Info(NamedTuple):
    """What a step saw."""

    reconstruction: Float[Tensor, ""]  # mean squared difference of the data and the chain's end
    use: Float[Tensor, " J"]  # mean P(on) of each capsule
    confidence: Float[Tensor, ""]  # mean of the largest P(on)
    routing_entropy: Float[Tensor, ""]  # of c over the axis of its softmax; 1 is uniform


def hidden_phase(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    z: Float[Tensor, "B J N"],
    noise: Noise,
    stream: int,
    temperature: float = 1.0,
    on: Int[Tensor, " B"] | None = None,
) -> Phase:
    """The hidden side of x. With the gate one capsule is drawn, or `on` is kept."""
    mean = layer.hidden_given_visible(z)
    probability = layer.on_given_visible(z, temperature)
    if not layer.gated:
        return Phase(x, mean, None, probability)
    if on is None:
        on = noise.choose(stream, probability)
    return Phase(x, switched_on(mean, on), on, probability)


def switched_on(h: Float[Tensor, "B J N"], on: Int[Tensor, " B"] | None) -> Float[Tensor, "B J N"]:
    """h with every capsule but `on` set to 0."""
    if on is None:
        return h
    return h * torch.nn.functional.one_hot(on, h.shape[1]).to(h)[:, :, None]


def negative_phase(
    layer: CapsuleLayer,
    positive: Phase,
    c: Float[Tensor, "B J I"] | None,
    noise: Noise,
    k: int = 1,
    temperature: float = 1.0,
    regate: bool = False,
    sample_visible: bool = False,
) -> Phase:
    """k steps of the chain h ~ P(h | x), x = P(x | h), with c fixed.

    The visible units carry their probabilities, as in the paper; `sample_visible` draws them, which makes the
    chain exact.
    """
    phase = positive
    for step in range(k):
        stream = 4 * step
        h = switched_on(layer.sample_hidden(phase.mean, noise, stream + 1), phase.on)
        x = layer.visible_given_hidden(h, c)
        if sample_visible:
            x = (noise.uniform(stream + 2, *x.shape[1:]) < x).to(x)
        z = layer.preactivation(x, c)
        phase = hidden_phase(layer, x, z, noise, stream + 3, temperature, None if regate else phase.on)
    if layer.gated and not regate:  # the same capsule at both ends: no news of which is on
        return phase._replace(on_probability=positive.on_probability)
    return phase


def gradients(
    layer: CapsuleLayer, positive: Phase, negative: Phase, c: Float[Tensor, "B J I"] | None
) -> Gradients:
    """The update of Eq. 18 for the weights, and its like for the biases and the gate."""
    ends = [correlation(layer, phase.x, phase.mean, c) for phase in (positive, negative)]
    return Gradients(
        w_JNMI=(ends[0] - ends[1]) / len(positive.x),
        a=(positive.x - negative.x).mean(0),
        b=(positive.mean - negative.mean).mean(0),
        d=(positive.on_probability - negative.on_probability).mean(0),
    )


def correlation(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    h: Float[Tensor, "B J N"],
    c: Float[Tensor, "B J I"] | None,
) -> Float[Tensor, "J N M I"]:
    """The sum over the batch of r_ij h_j x_i^T, x less its mean: what the energy's derivative by w is made of."""
    if kernels.chosen(x, h):
        return kernels.correlation(h, kernels.centred(x, layer.mu), None if c is None else layer.fan * c)
    if c is None:
        return torch.einsum("bjn,bim->jnmi", h, x - layer.mu)
    return torch.einsum("bji,bjn,bim->jnmi", layer.fan * c, h, x - layer.mu)


@torch.no_grad()
def step(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    noise: Noise,
    k: int = 1,
    temperature: float = 1.0,
    regate: bool = False,
    sample_visible: bool = False,
    on: Int[Tensor, " B"] | None = None,
    teach: float = 0.0,
) -> tuple[Gradients, Info]:
    """Route x, run both phases, and compare them.

    `on` says which capsule is on instead of drawing it; `teach`, how much the gate learns to choose that one.
    """
    check_count("k", k)
    if layer.gated and not regate and kernels.chosen(x, layer.w_JNMI, layer.a, layer.b):
        return step_of_winners(layer, x, noise, k, temperature, sample_visible, on, teach)
    routing = layer(x)
    c = None if layer.iterations == 1 else routing.c
    positive = hidden_phase(layer, x, routing.z, noise, 0, temperature, on)
    negative = negative_phase(layer, positive, c, noise, k, temperature, regate, sample_visible)
    info = Info(
        reconstruction=(positive.x - negative.x).square().mean(),
        use=positive.on_probability.mean(0),
        confidence=positive.on_probability.amax(-1).mean(),
        routing_entropy=routing_entropy(layer, c, x),
    )
    found = gradients(layer, positive, negative, c)
    if teach and on is not None and layer.gated:
        wrong = lesson(layer, routing.z, on, positive.on_probability, teach / (temperature * len(x)))
        found.w_JNMI.add_(correlation(layer, x, wrong, c))
        found.b.add_(wrong.sum(0))
    return found, info


def lesson(
    layer: CapsuleLayer,
    z: Float[Tensor, "B J N"],
    on: Int[Tensor, " B"],
    probability: Float[Tensor, "B J"],
    weight: float,
) -> Float[Tensor, "B J N"]:
    """weight times the gradient of log P(on | x) by z: the hidden means, by how far each capsule is from its due."""
    due = torch.nn.functional.one_hot(on, probability.shape[1]).to(z) - probability
    due = torch.where(due.abs() < SURE, 0, weight * due)
    return due[:, :, None] * layer.hidden_given_visible(z)


def step_of_winners(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    noise: Noise,
    k: int,
    temperature: float,
    sample_visible: bool,
    on: Int[Tensor, " B"] | None = None,
    teach: float = 0.0,
) -> tuple[Gradients, Info]:
    """`step` by the CPU kernels when the winner stays: only its chain is followed, 1/J of the work."""
    sizes = {"B": None, "I": layer.lower[0], "M": layer.lower[1]}
    check_tensor("x", x, sizes, like=layer.w_JNMI, finite=False)
    x_BMI = kernels.centred(x, layer.mu)
    c, z, entropy = layer.routed_by_kernels(x_BMI)
    probability = layer.on_given_visible(z, temperature)
    taught = on if teach else None
    if on is None:
        on = noise.choose(0, probability)
    mean_BN = layer.hidden_given_visible(z[torch.arange(len(x)), on])
    routed = None if layer.iterations == 1 else c
    w, a, b, reconstruction = kernels.winner_gradients(
        layer.w_JNMI, layer.a, layer.b, layer.mu, x_BMI, mean_BN, on, routed, layer.fan,
        layer.neurons == "binary", noise, k, sample_visible,
    )  # fmt: skip
    if taught is not None:
        wrong = lesson(layer, z, taught, probability, teach / (temperature * len(x)))
        kernels.add_correlation(wrong, x_BMI, routed, layer.fan, w)
        b.add_(wrong.sum(0))
    info = Info(
        reconstruction=reconstruction,
        use=probability.mean(0),
        confidence=probability.amax(-1).mean(),
        routing_entropy=entropy.mean() / math.log(layer.fan) if layer.fan > 1 else x.new_ones(()),
    )
    return Gradients(w, a, b, torch.zeros_like(layer.d)), info


def routing_entropy(layer: CapsuleLayer, c: Float[Tensor, "B J I"] | None, x: Tensor) -> Float[Tensor, ""]:
    """Mean entropy of the routing weights, relative to uniform ones."""
    if c is None or layer.fan == 1:
        return x.new_ones(())
    axis = 2 if layer.normalize == "lower" else 1
    return torch.special.entr(c).sum(axis).mean() / torch.log(c.new_tensor(layer.fan))
