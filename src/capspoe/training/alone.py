r"""Updates of contrastive divergence in which each capsule reconstructs the image alone.

Eq. 16 of the paper averages over P(x_j | x_i), the states of a *pair* of capsules. Read so, capsule j has a chain of
its own, and no other capsule takes part in its reconstruction:

.. math::
    x_{i|j} = \sigma(c_{ij} W_{ij}^T h_j + a_i), \qquad
    \Delta W_{ij} = c_{ij} (\langle x_i h_j \rangle_{data} - \langle x_{i|j} h'_j \rangle_{model})

with h'_j the mean of capsule j given its own reconstruction. So one capsule alone, which is how the paper generates,
can make a whole image. The layer is then J RBMs that share their visible bias; a learns from the mean of their
reconstructions. `CapsulesAlone` is this.

`CapsulePairs` takes the energy of a pair (Eq. 8), which has no routing weight, on the way down:
:math:`x_{i|j} = \sigma(W_{ij}^T h_j + a_i)`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_count
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients
from capspoe.training.update import Info, RoutedBatch, Update


@dataclass(frozen=True)
class CapsulesAlone(Update):
    """CD-k with a chain for each capsule, in a layer without a gate.

    Parameters
    ----------
    k : steps of each Markov chain
    sample_hidden : draw the hidden states of the chains; otherwise they hold their means
    sample_visible : draw the visible states; otherwise they hold their probabilities, as in the paper
    """

    k: int = 1
    sample_hidden: bool = True
    sample_visible: bool = False

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
        """The gradient for fixed c, estimated from a batch (ascent direction)."""
        if layer.gate.one_on:
            raise InputError("with the gate a capsule reconstructs alone anyway; use ContrastiveDivergence")
        # Route, with W fixed.
        batch = RoutedBatch.of(layer, x, noise, temperature, target)
        r_BJI = layer.relative(batch.c)
        h_pos_BJN = layer.hidden_mean(batch.z)

        # Neurons before capsules, as in w: then weights and states are plain matrices.
        x_BMI = x.transpose(1, 2).contiguous()
        mean_BMI = torch.zeros_like(x_BMI)  # of the reconstructions
        squared_error = x.new_zeros(())
        w_JNMI = torch.empty_like(layer.w_JNMI)
        b_JN = torch.empty_like(layer.b)
        for j in range(layer.upper[0]):
            r_B1I = None if r_BJI is None else r_BJI[:, j, None]
            h_pos_BN = h_pos_BJN[:, j]
            # The chain of capsule j, with c fixed. Every draw has a stream of its own.
            h_neg_BN = h_pos_BN
            for step in range(self.k):
                stream = 1 + 2 * (step * layer.upper[0] + j)
                h_BN = layer.neurons.sample(h_neg_BN, noise, stream) if self.sample_hidden else h_neg_BN
                x_neg_BMI = self.reconstruct(layer, j, h_BN, r_B1I)
                if self.sample_visible:
                    uniform_BIM = noise.uniform(stream + 1, *layer.lower)
                    x_neg_BMI = (uniform_BIM.transpose(1, 2) < x_neg_BMI).to(x_neg_BMI)
                weighted_BV = weighted(layer, x_neg_BMI, r_B1I)
                h_neg_BN = layer.hidden_mean(weighted_BV @ layer.w_JNMI[j].flatten(1).T + layer.b[j])
            # Compare both of its ends.
            w_NV = h_pos_BN.T @ weighted(layer, x_BMI, r_B1I) - h_neg_BN.T @ weighted_BV
            w_JNMI[j] = w_NV.view_as(w_JNMI[j]) / (len(x) * self.rate_unit(layer))
            b_JN[j] = (h_pos_BN - h_neg_BN).mean(0)
            mean_BMI.add_(x_neg_BMI, alpha=1 / layer.upper[0])
            squared_error += F.mse_loss(x_neg_BMI, x_BMI) / layer.upper[0]
        a_IM = (x_BMI - mean_BMI).mean(0).T
        info = batch.diagnostics(layer, x - mean_BMI.transpose(1, 2))
        return Gradients(w_JNMI, a_IM, b_JN), info._replace(reconstruction=squared_error)

    def reconstruct(
        self, layer: CapsuleLayer, j: int, h: Float[Tensor, "B N"], r: Float[Tensor, "B 1 I"] | None
    ) -> Float[Tensor, "B M I"]:
        """x_{i|j} = sigmoid(c_ij W_ij' h_j + a_i)."""
        logits_BMI = (h @ layer.w_JNMI[j].flatten(1)).unflatten(1, layer.lower[::-1])
        if r is not None:
            logits_BMI *= r
        return logits_BMI.add_(layer.a.T).sigmoid_()

    def rate_unit(self, layer: CapsuleLayer) -> float:
        """What the gradient of w is divided by, so that one learning rate suits all sizes of a layer."""
        return 1.0


class CapsulePairs(CapsulesAlone):
    """The same, with the energy of a pair of capsules on the way down: its weight is 1, where c is about 1 / I.

    Then z, a weighted mean on the way up, stays as small as the N(0, 1) that the paper draws it from. The forward and
    the backward pass do not belong to one energy, which is why section 3.1 declines such weights. To generate, the
    logits must be multiplied by the number of lower capsules (`--logit-scale`), and there can be no visible bias.
    """

    def reconstruct(
        self, layer: CapsuleLayer, j: int, h: Float[Tensor, "B N"], r: Float[Tensor, "B 1 I"] | None
    ) -> Float[Tensor, "B M I"]:
        """x_{i|j} = sigmoid(W_ij' h_j + a_i), where W = fan w."""
        return super().reconstruct(layer, j, layer.fan * h, None)

    def rate_unit(self, layer: CapsuleLayer) -> float:
        """The learning rate is that of W = fan w."""
        return float(layer.fan)


def weighted(
    layer: CapsuleLayer, x: Float[Tensor, "B M I"], r: Float[Tensor, "B 1 I"] | None
) -> Float[Tensor, "B V"]:
    """r_ij (x_i - mu_i), as one vector for each image."""
    if layer.centred:
        x = x - layer.mu.T
    if r is not None:
        x = x * r
    return x.flatten(1)
