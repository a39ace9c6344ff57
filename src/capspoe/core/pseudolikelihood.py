r"""The pseudo-likelihood of codes (Besag 1975): a likelihood that needs no partition function.

Each visible unit is compared with its prediction given all the others and the routing weights:

.. math:: \sum_k x_k \log P(x_k = 1 \mid x_{-k}) + (1 - x_k) \log P(x_k = 0 \mid x_{-k}),
          \qquad \operatorname{logit} P(x_k = 1 \mid x_{-k}) = F(x_{k \to 0}) - F(x_{k \to 1})

F is the free energy (Eq. 13). log Z cancels, so values of different layers can be compared.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.core.layer import CapsuleLayer


@torch.no_grad()
def pseudo_likelihood(
    layer: CapsuleLayer, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"] | None
) -> Float[Tensor, " B"]:
    """The pseudo-log-likelihood of each code for fixed c; None means uniform routing weights."""
    z_BJN = layer.preactivation(x, c)
    r = layer.relative(c)
    r_BJ1I = x.new_ones(1, 1, 1, 1) if r is None else r[:, :, None]
    x_BMI = x.transpose(1, 2)
    own = layer.gate.exclusive  # with the gate the visible bias is part of each capsule's evidence
    bias_BJ = (x - layer.mu).flatten(1) @ layer.a.flatten(1).T if own else z_BJN.new_zeros(z_BJN.shape[:2])

    def minus_free_energy(change_BMI: Tensor) -> Float[Tensor, "B M I"]:
        """-F after one unit alone has changed by this much, without a shared visible bias; for every unit."""
        change_B1MI = change_BMI[:, None]
        log_evidence = bias_BJ[:, :, None, None] + (layer.a.transpose(1, 2) * change_B1MI if own else 0)
        for n in range(layer.upper[1]):
            shift = layer.w_JNMI[:, n] * r_BJ1I * change_B1MI
            log_evidence = log_evidence + layer.neurons.log_partition(z_BJN[:, :, n, None, None] + shift)
        return layer.gate.log_evidence(log_evidence.movedim(1, -1), layer.d)

    logits_BMI = minus_free_energy(1 - x_BMI) - minus_free_energy(-x_BMI)
    logits_BMI = logits_BMI if own else layer.a.T + logits_BMI
    return -F.binary_cross_entropy_with_logits(logits_BMI, x_BMI, reduction="none").sum((1, 2))
