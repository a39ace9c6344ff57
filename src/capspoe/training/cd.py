r"""One update of contrastive divergence (section 3.2 of the paper).

The energy depends on the routing weights c, and c on x. So each update has two steps. First route, with W fixed.
Then, with c fixed, the layer is an RBM: run its Markov chain from the data for k steps and compare its ends (Eq. 18),

.. math:: \Delta W_{ij} = c_{ij} (\langle x_i h_j \rangle_{data} - \langle x_i h_j \rangle_{model})

With the gate, the capsule that is on for an image stays on through the negative phase. Where a target says which
capsule should be on, the gate also learns by cross-entropy. The gradient of log P(on | x) has the same form, with h_j
the mean of capsule j if it were on:

.. math:: \Delta W_{ij} = c_{ij} (1[j = \text{target}] - P(j \text{ on} \mid x)) \langle x_i h_j \rangle
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.checks import check_count
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients, PairSums, Sums, routed

NEGLIGIBLE = 1e-3  # errors of the gate below this have no gradient: skipping them saves most of the work
ENTROPY_IMAGES = 16  # images whose routing weights give the entropy


class Info(NamedTuple):
    """Diagnostics of an update."""

    reconstruction: Float[Tensor, ""]  # mean squared difference between the data and the end of the chain
    use: Float[Tensor, " J"]  # mean P(on) of each capsule
    confidence: Float[Tensor, ""]  # mean of the largest P(on)
    routing_entropy: Float[Tensor, ""]  # of c over the axis of its softmax, relative to uniform weights


@dataclass(frozen=True)
class ContrastiveDivergence:
    """CD-k.

    Parameters
    ----------
    k : steps of the Markov chain
    sample_hidden : draw the hidden states of the chain; otherwise they hold their means
    sample_visible : draw the visible states; otherwise they hold their probabilities, as in the paper
    gate_loss_weight : weight of the cross-entropy with which the gate learns its targets
    """

    k: int = 1
    sample_hidden: bool = True
    sample_visible: bool = False
    gate_loss_weight: float = 1.0

    def __post_init__(self) -> None:
        check_count("k", self.k)

    @torch.no_grad()
    def step(
        self,
        layer: CapsuleLayer,
        x: Float[Tensor, "B I M"],
        noise: Noise,
        temperature: float = 1.0,
        target: Int[Tensor, " B"] | None = None,
    ) -> tuple[Gradients, Info]:
        """The gradient of the log likelihood for fixed c, estimated from a batch (ascent direction)."""
        # Route, with W fixed.
        c, z = layer(x)
        on_probability = layer.on_probability(z, x, temperature)
        on = layer.gate.choose(on_probability, noise, 0) if target is None else target
        rbm = routed(layer, c, on)

        # The positive phase.
        h_pos = rbm.pick(layer.hidden_mean(z))

        # The negative phase: k steps of the chain, with c fixed. Every draw has a stream of its own.
        h_neg = h_pos
        for step in range(self.k):
            h = rbm.sample_hidden(h_neg, noise, 4 * step + 1) if self.sample_hidden else h_neg
            uniform = noise.uniform(4 * step + 2, *layer.lower) if self.sample_visible else None
            x_neg, h_neg = rbm.reconstruct(h, uniform)

        # Compare both ends.
        sums = rbm.sums()
        sums.add(x, h_pos, +1)
        if target is not None and self.gate_loss_weight:
            weight = self.gate_loss_weight / (temperature * len(x))
            add_gate_gradient(sums, layer, x, z, gate_error(target, on_probability, weight))
        sums.add(x_neg, h_neg, -1)
        if on is not None:
            layer.follow_routing(c, on)
        return sums.total(), diagnostics(layer, x - x_neg, on_probability, c)


def gate_error(
    target: Int[Tensor, " B"], on_probability: Float[Tensor, "B J"], weight: float
) -> Float[Tensor, "B J"]:
    """`weight` times the gradient of log P(target | x) with respect to the gate's logits."""
    error = F.one_hot(target, on_probability.shape[1]).to(on_probability) - on_probability
    return torch.where(error.abs() < NEGLIGIBLE, 0, weight * error)


def add_gate_gradient(
    sums: Sums, layer: CapsuleLayer, x: Float[Tensor, "B I M"], z: Float[Tensor, "B J N"], error: Float[Tensor, "B J"]
) -> None:
    """Propagate the gate's error to the parameters; only pairs of an image and a capsule with an error count."""
    assert isinstance(sums, PairSums)  # only a gate that chooses one capsule has targets
    image, capsule = error.nonzero(as_tuple=True)
    sums.add_pairs(x, image, capsule, layer.hidden_mean(z[image, capsule]), error[image, capsule])


def diagnostics(
    layer: CapsuleLayer,
    difference: Float[Tensor, "B I M"],
    on_probability: Float[Tensor, "B J"],
    c: Float[Tensor, "B J I"],
) -> Info:
    """Diagnostics from the difference between both ends of the chain."""
    entropy = c.new_ones(())
    if layer.iterations > 1 and layer.fan > 1:
        axis = 2 if layer.normalize == "lower" else 1
        entropy = torch.special.entr(c[:ENTROPY_IMAGES]).sum(axis).mean() / math.log(layer.fan)
    return Info(
        reconstruction=difference.square().mean(),
        use=on_probability.mean(0),
        confidence=on_probability.amax(-1).mean(),
        routing_entropy=entropy,
    )
