r"""One update of contrastive divergence (section 3.2 of the paper).

The energy depends on the routing weights c, and c on x. So each update has two steps. First route, with W fixed.
Then, with c fixed, the layer is an RBM: run its Markov chain from the data for k steps and compare its ends (Eq. 18),

.. math:: \Delta W_{ij} = c_{ij} (\langle x_i h_j \rangle_{data} - \langle x_i h_j \rangle_{model})

With the gate, the capsule that is on for an image stays on through the negative phase. The gate learns its targets,
if it has any, by cross-entropy (`update.py`).
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.model.checks import check_count
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients, routed
from capspoe.training.update import Info, RoutedBatch, Update

DROPOUT_STREAM = 103  # no step of a chain has it: their streams are 1 and 2 more than a multiple of 4


@dataclass(frozen=True)
class ContrastiveDivergence(Update):
    """CD-k.

    Parameters
    ----------
    k : steps of the Markov chain
    sample_hidden : draw the hidden states of the chain; otherwise they hold their means
    sample_visible : draw the visible states; otherwise they hold their probabilities, as in the paper
    gate_loss_weight : weight of the cross-entropy with which the gate learns its targets
    capsule_dropout : without a gate, the probability that a capsule takes no part in an image's update
    """

    k: int = 1
    sample_hidden: bool = True
    sample_visible: bool = False
    gate_loss_weight: float = 1.0
    capsule_dropout: float = 0.0

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
        batch = RoutedBatch.of(layer, x, noise, temperature, target)
        rbm = routed(layer, batch.c, batch.on, self.kept(batch.z, noise))

        # The positive phase.
        h_pos = rbm.pick(layer.hidden_mean(batch.z))

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
            batch.add_gate_gradient(sums, layer, x, target, self.gate_loss_weight / temperature)
        sums.add(x_neg, h_neg, -1)
        if batch.on is not None:
            layer.follow_routing(batch.c, batch.on)
        return sums.total(), batch.diagnostics(layer, x - x_neg)

    def kept(self, z: Float[Tensor, "B J N"], noise: Noise) -> Float[Tensor, "B J"] | None:
        """1 for each capsule that takes part, 0 for those that drop out; None if none can."""
        if not self.capsule_dropout:
            return None
        return (noise.uniform(DROPOUT_STREAM, z.shape[1]) >= self.capsule_dropout).to(z)
