r"""What the updates of a layer share: routing the batch, the gate's loss, and diagnostics.

Where a target says which capsule should be on, the gate also learns by cross-entropy. The gradient of log P(on | x)
has the form of contrastive divergence, with h_j the mean of capsule j if it were on:

.. math:: \Delta W_{ij} = c_{ij} (1[j = \text{target}] - P(j \text{ on} \mid x)) \langle x_i h_j \rangle
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients, PairSums, Sums
from capspoe.training.starts import LayerInputs

NEGLIGIBLE = 1e-3  # errors of the gate below this have no gradient: skipping them saves most of the work
ENTROPY_IMAGES = 16  # images whose routing weights give the entropy
GATE_STREAM = 0  # of random numbers


class Info(NamedTuple):
    """Diagnostics of an update."""

    reconstruction: Float[Tensor, ""]  # mean squared difference between the data and the end of the chain
    use: Float[Tensor, " J"]  # mean P(on) of each capsule
    confidence: Float[Tensor, ""]  # mean of the largest P(on)
    routing_entropy: Float[Tensor, ""]  # of c over the axis of its softmax, relative to uniform weights
    log_weight: Float[Tensor, ""]  # mean of log P(x) + log Z, if the update knows log Z; else 0


class Update(ABC):
    """One update of a layer's parameters."""

    @abstractmethod
    def step(
        self,
        layer: CapsuleLayer,
        x: Float[Tensor, "B I M"],
        noise: Noise,
        temperature: float = 1.0,
        target: Int[Tensor, " B"] | None = None,
    ) -> tuple[Gradients, Info]:
        """The gradient for fixed c, estimated from a batch (ascent direction), and diagnostics."""

    def begin(self, inputs: LayerInputs) -> None:  # noqa: B027
        """Prepare for the first step, after the layer's start."""

    def largest_rate(self, share: Float[Tensor, " J"]) -> float:
        """The learning rate up to which this update is stable, for gradients as `step` returns them.

        Parameters
        ----------
        share : of the images, for each capsule
        """
        return math.inf

    def shares(self, layer: CapsuleLayer) -> Float[Tensor, " J"] | None:
        """P(j on) under the model, if the update knows log Z."""
        return None

    def metrics(self, info: Info) -> dict[str, float]:
        """Further metrics of a step, given the diagnostics of the whole batch."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What the next update needs besides the layer; a checkpoint keeps it."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:  # noqa: B027
        """Take one's own tensors out of the state of a checkpoint."""


class RoutedBatch(NamedTuple):
    """A batch after routing, with W fixed: the first step of an update (section 3.2)."""

    c: Float[Tensor, "B J I"]
    z: Float[Tensor, "B J N"]
    on_probability: Float[Tensor, "B J"]
    on: Int[Tensor, " B"] | None  # the target if there is one, else drawn; None where all capsules are on

    @classmethod
    def of(
        cls,
        layer: CapsuleLayer,
        x: Float[Tensor, "B I M"],
        noise: Noise,
        temperature: float,
        target: Int[Tensor, " B"] | None,
    ) -> "RoutedBatch":
        c, z = layer(x)
        on_probability = layer.on_probability(z, x, temperature)
        on = layer.gate.choose(on_probability, noise, GATE_STREAM) if target is None else target
        return cls(c, z, on_probability, on)

    def add_gate_gradient(
        self,
        sums: Sums,
        layer: CapsuleLayer,
        x: Float[Tensor, "B I M"],
        target: Int[Tensor, " B"],
        loss_weight: float,
    ) -> None:
        """Propagate the gate's error to the parameters; only pairs of an image and a capsule with an error count."""
        assert isinstance(sums, PairSums)  # only a gate that chooses one capsule has targets
        error = gate_error(target, self.on_probability, loss_weight / len(x))
        image, capsule = error.nonzero(as_tuple=True)
        sums.add_pairs(x, image, capsule, layer.hidden_mean(self.z[image, capsule]), error[image, capsule])

    def diagnostics(self, layer: CapsuleLayer, difference: Float[Tensor, "B I M"]) -> Info:
        """Diagnostics from the difference between both ends of the chain."""
        entropy = self.c.new_ones(())
        if layer.iterations > 1 and layer.fan > 1:
            axis = 2 if layer.normalize == "lower" else 1
            entropy = torch.special.entr(self.c[:ENTROPY_IMAGES]).sum(axis).mean() / math.log(layer.fan)
        return Info(
            reconstruction=difference.square().mean(),
            use=self.on_probability.mean(0),
            confidence=self.on_probability.amax(-1).mean(),
            routing_entropy=entropy,
            log_weight=self.c.new_zeros(()),
        )


def gate_error(
    target: Int[Tensor, " B"], on_probability: Float[Tensor, "B J"], weight: float
) -> Float[Tensor, "B J"]:
    """`weight` times the gradient of log P(target | x) with respect to the gate's logits."""
    error = F.one_hot(target, on_probability.shape[1]).to(on_probability) - on_probability
    return torch.where(error.abs() < NEGLIGIBLE, 0, weight * error)
