r"""The pseudo-likelihood of codes (Besag 1975): a likelihood that needs no partition function.

Each visible unit is compared with what the layer expects of it, given all the others and the routing weights:

.. math:: \sum_k x_k \log P(x_k = 1 \mid x_{-k}) + (1 - x_k) \log P(x_k = 0 \mid x_{-k}),
          \qquad \operatorname{logit} P(x_k = 1 \mid x_{-k}) = F(x_{k \to 0}) - F(x_{k \to 1})

F is the free energy (Eq. 13), in which log Z cancels, so that values of different layers can be compared.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.capsules import CapsuleLayer


@torch.no_grad()
def pseudo_likelihood(
    layer: CapsuleLayer, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"] | None
) -> Float[Tensor, " B"]:
    """The pseudo-log-likelihood of each code, for fixed c; None stands for uniform routing weights."""
    z_BJN = layer.preactivation(x, c)
    r_BJ1I = x.new_ones(1, 1, 1, 1) if c is None else (layer.fan * c)[:, :, None]
    x_BMI = x.transpose(1, 2)
    logits_BMI = layer.a.T + (
        _evidence_at(layer, z_BJN, r_BJ1I, 1 - x_BMI) - _evidence_at(layer, z_BJN, r_BJ1I, -x_BMI)
    )
    return -F.binary_cross_entropy_with_logits(logits_BMI, x_BMI, reduction="none").sum((1, 2))


def _evidence_at(
    layer: CapsuleLayer,
    z_BJN: Float[Tensor, "B J N"],
    r_BJ1I: Float[Tensor, "#B #J 1 #I"],
    change_BMI: Float[Tensor, "B M I"],
) -> Float[Tensor, "B M I"]:
    """-F, but for its term in a, after one unit alone has changed by so much: for every unit."""
    w_JNMI, change = layer.w_JNMI, change_BMI[:, None]
    if layer.neurons == "gaussian":  # |z + r w change|^2 / 2, multiplied out
        along = torch.einsum("bjn,jnmi->bjmi", z_BJN, w_JNMI) * r_BJ1I
        square = w_JNMI.square().sum(1) * r_BJ1I.square()
        evidence = layer.evidence(z_BJN)[:, :, None, None] + along * change + square * change.square() / 2
    else:
        evidence = z_BJN.new_zeros(())
        for n in range(layer.upper[1]):
            evidence = evidence + F.softplus(z_BJN[:, :, n, None, None] + w_JNMI[:, n] * r_BJ1I * change)
    if not layer.gated:
        return evidence.sum(1)
    return torch.logsumexp(evidence + layer.d[:, None, None], 1)
