r"""A layer after routing. With the weights c fixed it is an RBM with the weights c_ij W_ij (section 3.1).

`RoutedRBM` has all capsules on: the paper's energy as written. `WinnerRBM` has one capsule on for each image and
computes only that one, 1/J of the work. Both have the same methods, which is all that contrastive divergence needs:

    pick             the hidden units that are on, from those of all capsules
    hidden_mean      E[h | x]
    sample_hidden    h ~ P(h | x), given its mean
    reconstruct      x = P(x | h), and E[h | x] of that x: one step of the Markov chain
    sums             an accumulator of the derivatives of the energy
"""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise

PAIRS = 1_000  # pairs of a capsule and an image that are summed at once: more do not fit the cache


class Gradients(NamedTuple):
    """Averages of -dE/d(parameter) over a batch with c fixed, or differences of such averages."""

    w_JNMI: Float[Tensor, "J N M I"]
    a: Float[Tensor, "*J I M"]
    b: Float[Tensor, "J N"]


class Reconstruction(NamedTuple):
    """One step of the chain: the visible units, and the means of the hidden units given them."""

    x: Float[Tensor, "B I M"]
    hidden_mean: Tensor


class Sums(Protocol):
    """An accumulator of derivatives."""

    def add(self, x: Float[Tensor, "B I M"], h: Tensor, sign: float) -> None:
        """Add `sign` times -dE/d(parameters) at the states (x, h) of the batch."""
        ...

    def total(self) -> Gradients:
        """The sum, divided by the size of the batch."""
        ...


def routed(
    layer: CapsuleLayer,
    c: Float[Tensor, "B J I"],
    on: Int[Tensor, " B"] | None,
    keep: Float[Tensor, "B J"] | None = None,
) -> "RoutedRBM | WinnerRBM":
    """The RBM that a layer is once x has been routed and the gate has chosen; without a gate, `keep` is dropout."""
    if on is None:
        return RoutedRBM(layer, c, keep)
    return WinnerRBM(layer, on, OwnRouting(layer.relative(c)))


# All capsules are on.


class RoutedRBM:
    """The paper's energy (Eq. 9) with c fixed: hidden states are (B, J, N).

    Parameters
    ----------
    layer : its parameters
    c : the routing weights
    keep : dropout, 1 for the capsules that take part and 0 for those whose states are 0; None keeps all
    """

    def __init__(
        self, layer: CapsuleLayer, c: Float[Tensor, "B J I"], keep: Float[Tensor, "B J"] | None = None
    ) -> None:
        self.layer = layer
        self.c = c
        self.keep = keep

    def pick(self, h: Float[Tensor, "B J N"]) -> Float[Tensor, "B J N"]:
        if self.keep is None:
            return h
        return h * self.keep[:, :, None]

    def hidden_mean(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B J N"]:
        return self.pick(self.layer.hidden_mean(self.layer.preactivation(x, self.c)))

    def sample_hidden(self, mean: Float[Tensor, "B J N"], noise: Noise, stream: int) -> Float[Tensor, "B J N"]:
        return self.pick(self.layer.sample_hidden(mean, noise, stream))

    def reconstruct(self, h: Float[Tensor, "B J N"], uniform: Float[Tensor, "B I M"] | None = None) -> Reconstruction:
        """x holds its probabilities, or is drawn if uniform random numbers are given."""
        x = self.layer.visible_mean(h, self.c)
        if uniform is not None:
            x = (uniform < x).to(x)
        return Reconstruction(x, self.hidden_mean(x))

    def sums(self) -> "StateSums":
        return StateSums(self.layer, self.c)


class StateSums:
    """Sums over images with all capsules on."""

    def __init__(self, layer: CapsuleLayer, c: Float[Tensor, "B J I"]) -> None:
        self.layer = layer
        self.c = c
        self.w_JNMI = torch.zeros_like(layer.w_JNMI)
        self.a = torch.zeros_like(layer.a)
        self.b_BJN = layer.b.new_zeros(())

    def add(self, x: Float[Tensor, "B I M"], h: Float[Tensor, "B J N"], sign: float) -> None:
        self.w_JNMI = self.w_JNMI + sign * self.correlation(x, h)
        self.a = self.a + sign * self.layer.gate.bias.gradient(self.layer.a, x, self.layer.mu, None)
        self.b_BJN = self.b_BJN + sign * h

    def correlation(self, x: Float[Tensor, "B I M"], h: Float[Tensor, "B J N"]) -> Float[Tensor, "J N M I"]:
        """Sum over the batch of r_ij h_j (x_i - mu_i)^T."""
        centred = x - self.layer.mu
        r = self.layer.relative(self.c)
        if r is None:
            return torch.einsum("bjn,bim->jnmi", h, centred)
        # One upper capsule after the other: no (B, J, I, M) is stored.
        return torch.stack([torch.einsum("bi,bim,bn->nmi", r[:, j], centred, h[:, j]) for j in range(h.shape[1])])

    def total(self) -> Gradients:
        batch = len(self.b_BJN)
        return Gradients(self.w_JNMI / batch, self.a / batch, self.b_BJN.mean(0))


# One capsule is on.


class RoutingWeights(Protocol):
    """Relative routing weights r_ij of pairs of a capsule and an image."""

    def of(self, image_jP: Int[Tensor, "j P"], capsule_j: Int[Tensor, " j"]) -> Tensor | None:
        """(j, P, 1, I), or (j, 1, 1, I) if they are the same for all images; None if they are uniform."""
        ...


@dataclass(frozen=True)
class OwnRouting:
    """Each image has the weights that it was routed by; None means uniform ones."""

    r_BJI: Float[Tensor, "B J I"] | None

    def of(self, image_jP: Int[Tensor, "j P"], capsule_j: Int[Tensor, " j"]) -> Tensor | None:
        if self.r_BJI is None:
            return None
        image_jP = image_jP % len(self.r_BJI)  # a second batch is another version of the same images
        return self.r_BJI[image_jP, capsule_j[:, None]][:, :, None]


@dataclass(frozen=True)
class MeanRouting:
    """Each capsule has the mean weights of its images, which states without an image need."""

    mean_JI: Float[Tensor, "J I"] | None

    def of(self, image_jP: Int[Tensor, "j P"], capsule_j: Int[Tensor, " j"]) -> Tensor | None:
        if self.mean_JI is None:
            return None
        return self.mean_JI[capsule_j, None, None]


@dataclass(frozen=True)
class WinnerNoise(Noise):
    """The numbers of one capsule of each image, `on`, among those that `Noise` draws for all capsules (J, N)."""

    on: Tensor = field(kw_only=True)
    capsules: int = field(kw_only=True)

    def uniform(self, stream: int, *shape: int) -> Tensor:
        """What Noise.uniform(stream, *shape[:-1], J, N) has for the capsules that are on; shape ends with N."""
        block_R = torch.arange(math.prod(shape[:-1]), device=self.on.device)
        n = torch.arange(shape[-1], device=self.on.device)
        position = ((block_R * self.capsules)[:, None] + self.on[:, None, None]) * shape[-1] + n
        return self._uniform_at(stream, position.flatten(1)).reshape(-1, *shape)


class Slots(NamedTuple):
    """Where each capsule occurs in a list of n capsules: P slots for each capsule, some of them spare."""

    entry_JP: Int[Tensor, "J P"]  # the entry in each slot; 0 in spare ones
    slot: Int[Tensor, " n"]  # the slot of each entry, among those of its capsule
    used_JP: Float[Tensor, "J P"]  # 0 for spare slots, else 1

    @classmethod
    def of(cls, capsule: Int[Tensor, " n"], capsules: int) -> "Slots":
        entry = torch.arange(len(capsule), device=capsule.device)
        order = torch.argsort(capsule, stable=True)
        count = torch.bincount(capsule, minlength=capsules)
        first = count.cumsum(0) - count
        slot = torch.empty_like(capsule)
        slot[order] = entry - first[capsule[order]]
        entry_JP = capsule.new_zeros(capsules, int(count.max()))
        entry_JP[capsule, slot] = entry
        used = torch.arange(entry_JP.shape[1], device=capsule.device) < count[:, None]
        return cls(entry_JP, slot, used.float())


class WinnerRBM:
    """The RBM of the capsule that is on: hidden states are (B, N).

    Images of the same capsule lie side by side, (J, P), so that each capsule multiplies its matrix once.
    """

    def __init__(self, layer: CapsuleLayer, on: Int[Tensor, " B"], weights: RoutingWeights) -> None:
        self.layer = layer
        self.on = on
        self.weights = weights
        self.slots = Slots.of(on, layer.upper[0])
        self.image_JP = self.slots.entry_JP
        self.w_JNV = layer.w_JNMI.flatten(2)
        self.r_JP1I = weights.of(self.image_JP, torch.arange(layer.upper[0], device=on.device))

    def pick(self, h: Float[Tensor, "B J N"]) -> Float[Tensor, "B N"]:
        return h[torch.arange(len(self.on), device=self.on.device), self.on]

    def hidden_mean(self, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B N"]:
        return self._hidden_mean((x - self.layer.mu).transpose(1, 2)[self.image_JP])

    def _hidden_mean(self, centred_JPMI: Tensor) -> Float[Tensor, "B N"]:
        if self.r_JP1I is not None:
            centred_JPMI = centred_JPMI * self.r_JP1I
        z_JPN = torch.baddbmm(self.layer.b[:, None], centred_JPMI.flatten(2), self.w_JNV.transpose(1, 2))
        return self.layer.hidden_mean(z_JPN[self.on, self.slots.slot])

    def sample_hidden(self, mean: Float[Tensor, "B N"], noise: Noise, stream: int) -> Float[Tensor, "B N"]:
        own = WinnerNoise(noise.seed, noise.step, noise.index, noise.dtype, on=self.on, capsules=self.layer.upper[0])
        return self.layer.neurons.sample(mean, own, stream)

    def reconstruct(self, h: Float[Tensor, "B N"], uniform: Float[Tensor, "B I M"] | None = None) -> Reconstruction:
        """x holds its probabilities, or is drawn if uniform random numbers are given."""
        layer = self.layer
        logits_JPMI = torch.bmm(h[self.image_JP], self.w_JNV).unflatten(2, layer.w_JNMI.shape[2:])
        if self.r_JP1I is not None:
            logits_JPMI = logits_JPMI * self.r_JP1I
        x_JPMI = torch.sigmoid(layer.a.transpose(1, 2)[:, None] + logits_JPMI)
        if uniform is not None:
            x_JPMI = (uniform[self.image_JP].transpose(2, 3) < x_JPMI).to(x_JPMI)
        x = x_JPMI[self.on, self.slots.slot].transpose(1, 2)
        return Reconstruction(x, self._hidden_mean(x_JPMI - layer.mu.T))

    def sums(self) -> "PairSums":
        return PairSums(self.layer, self.on, self.weights)


class PairSums:
    """Sums over pairs of an image and the capsule that is on for it.

    All pairs are summed at the end, by one product of matrices for each capsule.
    """

    def __init__(self, layer: CapsuleLayer, on: Int[Tensor, " B"], weights: RoutingWeights) -> None:
        self.layer = layer
        self.on = on
        self.weights = weights
        self.batches: list[Float[Tensor, "B I M"]] = []
        self.image: list[Int[Tensor, " n"]] = []
        self.capsule: list[Int[Tensor, " n"]] = []
        self.hidden: list[Float[Tensor, "n N"]] = []
        self.factor: list[Float[Tensor, " n"]] = []

    def add(self, x: Float[Tensor, "B I M"], h: Float[Tensor, "B N"], sign: float) -> None:
        image = torch.arange(len(x), device=x.device)
        self.add_pairs(x, image, self.on, h, x.new_full((len(x),), sign / len(x)))

    def add_pairs(
        self,
        x: Float[Tensor, "B I M"],
        image: Int[Tensor, " n"],
        capsule: Int[Tensor, " n"],
        h: Float[Tensor, "n N"],
        factor: Float[Tensor, " n"],
    ) -> None:
        """Add `factor` times the derivatives at (x[image], h) where `capsule` is on, which need not be the winner."""
        if not any(x is batch for batch in self.batches):
            self.batches.append(x)
        number = next(k for k, batch in enumerate(self.batches) if batch is x)
        self.image.append(number * len(x) + image)
        self.capsule.append(capsule)
        self.hidden.append(h)
        self.factor.append(factor)

    def total(self) -> Gradients:
        layer = self.layer
        J = layer.upper[0]
        image = torch.cat(self.image)
        centred_KMI = (torch.cat(self.batches) - layer.mu).transpose(1, 2)
        slots = Slots.of(torch.cat(self.capsule), J)
        factor_JP = torch.cat(self.factor)[slots.entry_JP] * slots.used_JP
        h_JPN = torch.cat(self.hidden)[slots.entry_JP] * factor_JP[:, :, None]
        w_parts = []
        a_parts = []
        # A few capsules at a time, so that the factors stay in the cache.
        for capsule_j in torch.arange(J, device=image.device).split(max(1, PAIRS // factor_JP.shape[1])):
            image_jP = image[slots.entry_JP[capsule_j]]
            x_jPMI = centred_KMI[image_jP]
            a_parts.append(torch.bmm(factor_JP[capsule_j, None], x_jPMI.flatten(2)))
            r_jP1I = self.weights.of(image_jP, capsule_j)
            if r_jP1I is not None:
                x_jPMI = x_jPMI * r_jP1I
            w_parts.append(torch.bmm(h_JPN[capsule_j].transpose(1, 2), x_jPMI.flatten(2)))
        w_JNMI = torch.cat(w_parts).view_as(layer.w_JNMI)
        a_JIM = torch.cat(a_parts).view(J, *layer.lower[::-1]).transpose(1, 2)
        return Gradients(w_JNMI, a_JIM, h_JPN.sum(1))
