"""Routed capsule layers as others write them, from their equations: what `capspoe.route` is compared with.

Each maps x (B, I, M) and W (J, I, N, M) to class capsules (B, J, N) with three iterations and stores all predictions.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from capspoe import squash
from capspoe.model.routing import reference

ITERATIONS = 3


def einsum_layer(x: Tensor, W: Tensor) -> Tensor:
    """Sabour, Frosst and Hinton 2017, procedure 1: softmax over the upper capsules, gradients through everything."""
    _, z = reference(x, W, ITERATIONS, "upper", "dot")
    return squash(z)


def plain_routing(x: Tensor, W: Tensor) -> Tensor:
    """The paper's routing as one would write it: einsum, F.normalize for the cosine, softmax over the lower capsules.

    `capspoe.model.routing.reference` computes the same, with lengths that cannot overflow.
    """
    u = torch.einsum("jinm,bim->bjin", W, x)
    directions = F.normalize(u, dim=-1)
    logits = x.new_zeros(u.shape[:3])
    for _ in range(ITERATIONS - 1):
        z = torch.einsum("bji,bjin->bjn", torch.softmax(logits, 2), u)
        logits = logits + torch.einsum("bjin,bjn->bji", directions, F.normalize(z, dim=-1))
    return torch.einsum("bji,bjin->bjn", torch.softmax(logits, 2), u)


def dense_capsule(x: Tensor, W: Tensor) -> Tensor:
    """As DenseCapsule of XifengGuo's CapsNet-Pytorch: the same, with no gradient through the routing weights."""
    u = torch.matmul(W, x[:, None, :, :, None]).squeeze(-1)  # (B, J, I, N)
    u_detached = u.detach()
    logits = x.new_zeros(u.shape[:3])
    for _ in range(ITERATIONS - 1):
        v = squash((torch.softmax(logits, 1)[..., None] * u_detached).sum(2))
        logits = logits + (v[:, :, None] * u_detached).sum(-1)
    return squash((torch.softmax(logits, 1)[..., None] * u).sum(2))


def capsule_layer(x: Tensor, W: Tensor) -> Tensor:
    """As gram-ai's capsule layer: softmax over the lower capsules, a logit for every number of a prediction."""
    u = x[None, :, :, None, :] @ W.transpose(2, 3)[:, None]  # (J, B, I, 1, N)
    logits = torch.zeros_like(u)
    for _ in range(ITERATIONS - 1):
        v = squash((torch.softmax(logits, 2) * u).sum(2, keepdim=True))
        logits = logits + (u * v).sum(-1, keepdim=True)
    return squash((torch.softmax(logits, 2) * u).sum(2).squeeze(2)).transpose(0, 1)


PEERS = {
    "einsum layer": einsum_layer,
    "DenseCapsule (XifengGuo)": dense_capsule,
    "capsule layer (gram-ai)": capsule_layer,
}
