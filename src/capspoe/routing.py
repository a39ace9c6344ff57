r"""Routing by agreement between capsules (section 2.2 of the paper), in plain PyTorch.

Lower capsule i predicts upper capsule j as :math:`u_{ij} = W_{ij} x_i`. Routing finds how much each of these
predictions counts: predictions that agree with the weighted mean of all of them gain weight.

This file is the readable reference. `capspoe.kernels` computes the same sums without ever storing the
(B, J, I, N) predictions.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.errors import InputError
from capspoe.validate import check_choice, check_count, check_tensor, traced

Normalize = Literal["lower", "upper"]
Agreement = Literal["cosine", "dot"]


class Routing(NamedTuple):
    """How the predictions count, and what they amount to.

    c    (B, J, I): the routing weights
    z    (B, J, N): the weighted sums of the predictions
    """

    c: Float[Tensor, "B J I"]
    z: Float[Tensor, "B J N"]


def length(v: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest 1"]:
    """|v|, without overflow or underflow of the squares on the way; its gradient at 0 is 0."""
    scale = v.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    return scale * torch.linalg.vector_norm(v / scale, dim=-1, keepdim=True)


def on_probability(z: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest"]:
    r"""P(j = on | x) = |squash(z_j)| = |z_j|^2 / (1 + |z_j|^2) (Eq. 7)."""
    n = length(z).squeeze(-1)
    small, large = n.clamp_max(1), n.clamp_min(1)
    return torch.where(n <= 1, small.square() / (1 + small.square()), 1 / (1 + large.reciprocal().square()))


def unit(v: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest N"]:
    """v / |v|, and 0 where v is 0."""
    scale = v.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    v = v / scale  # largest component now 1, or all are 0
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True).clamp_min(0.5)


def squash(z: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest N"]:
    r"""squash(z) = |z|^2 / (1 + |z|^2) z / |z|: the direction stays, the length falls below 1 (Eq. 6)."""
    return on_probability(z)[..., None] * unit(z)


def predictions(x: Float[Tensor, "B I M"], W: Float[Tensor, "J I N M"]) -> Float[Tensor, "B J I N"]:
    """u_ij = W_ij x_i: what each lower capsule says of each upper one."""
    return torch.einsum("jinm,bim->bjin", W, x)


def agreement_of(
    u: Float[Tensor, "B J I N"], z: Float[Tensor, "B J N"], kind: Agreement
) -> Float[Tensor, "B J I"]:
    """How well each prediction agrees with the squashed sum: their cosine, or Sabour's scalar product."""
    if kind == "cosine":
        return torch.einsum("bjin,bjn->bji", unit(u), unit(z))  # squash(z) has the direction of z
    return torch.einsum("bjin,bjn->bji", u, squash(z))


def route(
    x: Float[Tensor, "B I M"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    normalize: Normalize = "lower",
    agreement: Agreement = "cosine",
    sharpness: float = 1.0,
    detach_routing: bool = False,
) -> Routing:
    r"""Route the lower capsules x to the upper ones, through the matrices W[j, i] = W_ij.

    The logits start at 0. Each iteration takes c = softmax of the logits, z_j = sum_i c_ij u_ij (Eq. 5), and
    raises each logit by `sharpness` times the agreement of u_ij with squash(z_j). One iteration gives equal
    weights.

    normalize="lower" is this paper's softmax, over the lower capsules: sum_i c_ij = 1, so every upper capsule
    hears a weighted mean. normalize="upper" is that of Sabour et al. 2017: sum_j c_ij = 1, so every lower
    capsule divides its vote among the upper ones. agreement="dot" is Sabour's as well.

    Gradients flow through everything. With `detach_routing` they take the weights c as given and flow through the
    predictions of the last iteration alone, which needs less memory and is what contrastive divergence does.
    """
    check_routing_arguments(x, W, iterations, normalize, agreement)
    axis = 2 if normalize == "lower" else 1
    u_BJIN = predictions(x, W)
    heard_BJIN = u_BJIN.detach() if detach_routing else u_BJIN
    logits_BJI = u_BJIN.new_zeros(u_BJIN.shape[:3])
    for _ in range(iterations - 1):
        z_BJN = torch.einsum("bji,bjin->bjn", torch.softmax(logits_BJI, dim=axis), heard_BJIN)
        logits_BJI = logits_BJI + sharpness * agreement_of(heard_BJIN, z_BJN, agreement)
    c_BJI = torch.softmax(logits_BJI, dim=axis)
    z_BJN = torch.einsum("bji,bjin->bjn", c_BJI, u_BJIN)
    check_in_range(z_BJN)
    return Routing(c_BJI, z_BJN)


def reverse_route(
    h: Float[Tensor, "B J N"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    agreement: Agreement = "cosine",
    sharpness: float = 1.0,
) -> Routing:
    r"""Route downwards: z_i = sum_j c_ij W_ij^T h_j, still with sum_i c_ij = 1 (section 4.1).

    The same procedure with the layers exchanged, so the result's c is (B, J, I) and its z is (B, I, M). With
    a single capsule on, each lower capsule hears one prediction only: its cosine is 1, and so c is uniform.
    (Scalar products differ by the lengths of the predictions.)
    """
    c_BIJ, z_BIM = route(h, W.permute(1, 0, 3, 2), iterations, "upper", agreement, sharpness)
    return Routing(c_BIJ.transpose(1, 2), z_BIM)


def check_routing_arguments(x: Tensor, W: Tensor, iterations: int, normalize: str, agreement: str) -> None:
    check_tensor("x", x, {"B": None, "I": None, "M": None})
    check_tensor("W", W, {"J": None, "I": x.shape[1], "N": None, "M": x.shape[2]}, like=x)
    check_count("iterations", iterations)
    check_choice("normalize", normalize, ("lower", "upper"))
    check_choice("agreement", agreement, ("cosine", "dot"))


def check_in_range(z: Tensor) -> None:
    if not traced() and not bool(torch.isfinite(z).all()):
        dtype = str(z.dtype).removeprefix("torch.")
        raise InputError(f"x and W are too large: their product leaves the range of {dtype}")
