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
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe import kernels
from capspoe.infer.chains import PoseDensity, hmc
from capspoe.model.checks import check_count
from capspoe.model.gates import by_capsule, mask_off
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise

TRAINING_LEAPS = 8  # leapfrog steps of the persistent chains in each update; with 3 they do not mix
NEGLIGIBLE = 1e-3  # errors of the gate below this have no gradient: skipping them saves most of the work
PAIRS = 1_000  # of a capsule and an image that are summed at once: more leave the cache


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


def gradients(layer: CapsuleLayer, positive: Phase, negative: Phase, c: Float[Tensor, "B J I"] | None) -> Gradients:
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
    layer: CapsuleLayer, x: Float[Tensor, "B I M"], h: Float[Tensor, "B J N"], c: Float[Tensor, "B J I"] | None
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
    on_cpu = kernels.select(x, layer.w_JNMI, layer.a, layer.b)
    if layer.gate.exclusive and not regate and (on_cpu or layer.chains is not None):
        return winner_step(layer, x, noise, k, temperature, sample_visible, sample_hidden, on, gate_loss_weight)
    c, z = layer(x)
    positive = hidden_phase(layer, x, z, noise, 0, temperature, on)
    if positive.on is not None:
        layer.follow_routing(c, positive.on)
    negative = negative_phase(layer, positive, c, noise, k, temperature, regate, sample_visible, sample_hidden)
    found = gradients(layer, positive, negative, c)
    if gate_loss_weight and on is not None and layer.gate.exclusive:
        weight = gate_loss_weight / (temperature * len(x))
        error_BJ = gate_error(on, positive.on_probability, weight)
        error = error_BJ[:, :, None] * layer.hidden_mean(z)
        found.w_JNMI.add_(correlation(layer, x, error, c))
        found.a.add_(torch.einsum("bj,bim->jim", error_BJ, x - layer.mu))
        found.b.add_(error.sum(0))
    return found, diagnostics(layer, positive.x - negative.x, positive.on_probability, c)


def gate_error(target: Int[Tensor, " B"], probability: Float[Tensor, "B J"], weight: float) -> Float[Tensor, "B J"]:
    """weight times the gradient of log P(target | x) with respect to the gate's logits."""
    error = F.one_hot(target, probability.shape[1]).to(probability) - probability
    return torch.where(error.abs() < NEGLIGIBLE, 0, weight * error)


def winner_step(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    noise: Noise,
    k: int,
    temperature: float,
    sample_visible: bool,
    sample_hidden: bool,
    on: Int[Tensor, " B"] | None,
    gate_loss_weight: float,
) -> tuple[Gradients, Info]:
    """`step` when the winner stays on: only its chain is run, 1/J of the work."""
    c, z = layer(x)
    probability = layer.on_probability(z, x, temperature)
    target, on = on if gate_loss_weight else None, noise.choose(0, probability) if on is None else on
    batch, image = len(x), torch.arange(len(x), device=x.device)
    r, x = layer.relative(c), x - layer.mu
    chains = Winners(layer, on, r)
    routed = layer.chains is None  # otherwise the chains' mean routing weights count
    start = mean = layer.hidden_mean(z[image, on]) if routed else chains.up(x.transpose(1, 2)[chains.rows])
    drawn = WinnerNoise(noise.seed, noise.step, noise.index, noise.dtype, on=on, capsules=layer.upper[0])
    for step in range(k if routed else 1):  # the streams of negative_phase
        h = layer.neurons.sample(mean, drawn, 4 * step + 1) if sample_hidden else mean
        back, mean = chains.step(h, noise.uniform(4 * step + 2, *layer.lower) if sample_visible else None)
    pairs = [(image, on, start, x.new_full((batch,), 1 / batch))]
    if target is not None:
        error_BJ = gate_error(target, probability, gate_loss_weight / (temperature * batch))
        which, capsule = error_BJ.nonzero(as_tuple=True)
        pairs.append((which, capsule, layer.hidden_mean(z[which, capsule]), error_BJ[which, capsule]))
    if routed:
        pairs.append((batch + image, on, mean, x.new_full((batch,), -1 / batch)))
    found = sums_over_pairs(layer, torch.cat([x, back]), r, *map(torch.cat, zip(*pairs, strict=True)))
    if not routed:
        found = Gradients(*map(torch.sub, found, persistent_phase(layer, on, noise)))
    layer.follow_routing(c, on)  # last: until here all processes have the same mean weights, and so the same chains
    return found, diagnostics(layer, x - back, probability, c)


class Winners:
    """The chains of the capsules that are on, side by side for each capsule: (J, P), with spare places."""

    def __init__(self, layer: CapsuleLayer, on: Int[Tensor, " B"], r: Float[Tensor, "B J I"] | None) -> None:
        self.layer, self.on, self.w_JNV = layer, on, layer.w_JNMI.flatten(2)
        self.rows, self.place, _ = by_capsule(on, layer.upper[0])
        self.r_JP1I = weights_of_pairs(layer, r, self.rows, torch.arange(layer.upper[0], device=on.device))

    def step(
        self, h: Float[Tensor, "B N"], uniform: Float[Tensor, "B I M"] | None
    ) -> tuple[Float[Tensor, "B I M"], Float[Tensor, "B N"]]:
        """x = P(x | h), drawn if there are uniform numbers, less mu; and the means of h given that x."""
        layer = self.layer
        y = torch.bmm(h[self.rows], self.w_JNV).view(*self.rows.shape, *layer.w_JNMI.shape[2:])
        y = y if self.r_JP1I is None else y * self.r_JP1I
        x = torch.sigmoid(layer.a.transpose(1, 2)[:, None] + y)
        if uniform is not None:
            x = (uniform[self.rows].transpose(2, 3) < x).to(x)
        x = x - layer.mu.T
        return x[self.on, self.place].transpose(1, 2), self.up(x)

    def up(self, x_JPMI: Tensor) -> Float[Tensor, "B N"]:
        """The means of h given x, which is centred."""
        weighted = x_JPMI if self.r_JP1I is None else x_JPMI * self.r_JP1I
        z_JPN = torch.baddbmm(self.layer.b[:, None], weighted.flatten(2), self.w_JNV.transpose(1, 2))
        return self.layer.hidden_mean(z_JPN[self.on, self.place])


def weights_of_pairs(
    layer: CapsuleLayer, r: Float[Tensor, "B J I"] | None, image_jP: Tensor, capsule_j: Tensor
) -> Tensor | None:
    """Relative routing weights (j, P, 1, I) of pairs of a capsule and an image; None where they are uniform.

    Persistent chains have no image to route. With them both phases use each capsule's mean weights, so that both
    belong to one energy.
    """
    if r is None:
        return None
    if layer.chains is not None:
        return layer.mean_routing[capsule_j, None, None]
    return r[image_jP % len(r), capsule_j[:, None]][:, :, None]


def sums_over_pairs(
    layer: CapsuleLayer,
    x: Float[Tensor, "K I M"],
    r: Float[Tensor, "B J I"] | None,
    image: Int[Tensor, " n"],
    capsule: Int[Tensor, " n"],
    h: Float[Tensor, "n N"],
    weight: Float[Tensor, " n"],
) -> Gradients:
    """Weighted sums of minus the derivatives of the energy, over pairs of an image and the capsule that is on for it.

    `x` is centred and may hold several versions of the images, one batch after the other.
    """
    J = layer.upper[0]
    rows, _, used = by_capsule(capsule, J)
    weight_JP = weight[rows] * used
    h_JPN = h[rows] * weight_JP[:, :, None]
    parts = []
    for j in torch.arange(J, device=x.device).split(max(1, PAIRS // rows.shape[1])):
        x_jPMI = x.transpose(1, 2)[image[rows[j]]]
        a_j1V = torch.bmm(weight_JP[j, None], x_jPMI.flatten(2))
        if (r_jP1I := weights_of_pairs(layer, r, image[rows[j]], j)) is not None:
            x_jPMI = x_jPMI * r_jP1I
        parts.append((torch.bmm(h_JPN[j].transpose(1, 2), x_jPMI.flatten(2)), a_j1V))
    w, a = map(torch.cat, zip(*parts, strict=True))
    a = a.view(J, *layer.lower[::-1]).transpose(1, 2)
    return Gradients(w.view_as(layer.w_JNMI), a, h_JPN.sum(1), torch.zeros_like(layer.d))


def persistent_phase(layer: CapsuleLayer, on: Int[Tensor, " B"], noise: Noise) -> Gradients:
    """Averages over persistent chains (Tieleman 2008) in each capsule, by its share of the batch.

    They move by Hamiltonian Monte Carlo with each capsule's mean routing weights. Their codes are summed out:
    x- = P(x | h).
    """
    assert layer.chains is not None
    density, (J, C, _) = PoseDensity.of(layer), layer.chains.shape
    moves = Noise(noise.seed, noise.step, torch.arange(J * C, device=on.device), noise.dtype)
    layer.chains.copy_(hmc(density, layer.chains, moves, TRAINING_LEAPS).h)
    share = torch.bincount(on, minlength=J).to(layer.d)[:, None, None] / len(on)
    x_JCV = torch.sigmoid(density.logits(layer.chains)) - layer.mu.T.flatten()
    w = torch.bmm(layer.chains.transpose(1, 2), x_JCV).view_as(layer.w_JNMI)
    return Gradients(
        w_JNMI=share[..., None] / C * w * layer.mean_routing[:, None, None],
        a=share * x_JCV.mean(1).view(J, *layer.lower[::-1]).transpose(1, 2),
        b=share[:, 0] * layer.chains.mean(1),
        d=torch.zeros_like(layer.d),
    )


def diagnostics(layer: CapsuleLayer, difference: Tensor, probability: Tensor, c: Float[Tensor, "B J I"]) -> Info:
    """`difference` is that between both ends of the chain; a few images give the entropy of the routing weights."""
    entropy = c.new_ones(())
    if layer.iterations > 1 and layer.fan > 1:
        axis = 2 if layer.normalize == "lower" else 1
        entropy = torch.special.entr(c[:16]).sum(axis).mean() / math.log(layer.fan)
    return Info(difference.square().mean(), probability.mean(0), probability.amax(-1).mean(), entropy)
