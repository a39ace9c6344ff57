"""Gates: which upper capsules are on. A gate is one class below with the same methods; `GATES` lists them by name.

z is (B, J, N); log_evidence (B, J) is F_j, in an exclusive gate with the capsule's visible bias; bias d is (J,).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.routing import squash_length


class Winner:
    """Exactly one capsule is on: an implicit mixture of RBMs (Nair and Hinton 2008) with capsules as components.

    P(j on | x) = softmax_j((F_j + d_j) / T).
    """

    name = "winner"
    exclusive = True  # exactly one capsule is on

    def on_probability(self, z: Tensor, log_evidence: Tensor, bias: Tensor, temperature: float) -> Tensor:
        """P(capsule j is on | x), (B, J)."""
        return torch.softmax((log_evidence + bias) / temperature, dim=-1)

    def log_evidence(self, log_evidence: Tensor, bias: Tensor) -> Tensor:
        """log of the sum of exp(-E) over all hidden states, without the visible bias, (B,)."""
        return torch.logsumexp(log_evidence + bias, -1)


class NoGate:
    """All capsules share every image: the paper's energy as written, with P(j on | x) = |squash(z_j)| (Eq. 7)."""

    name, exclusive = "none", False

    def on_probability(self, z: Tensor, log_evidence: Tensor, bias: Tensor, temperature: float) -> Tensor:
        return squash_length(z)

    def log_evidence(self, log_evidence: Tensor, bias: Tensor) -> Tensor:
        return log_evidence.sum(-1)


GATES: dict[str, Winner | NoGate] = {gate.name: gate for gate in (Winner(), NoGate())}


def mask_off(h: Float[Tensor, "B J N"], on: Int[Tensor, " B"] | None) -> Float[Tensor, "B J N"]:
    """h with every capsule but `on` set to 0; unchanged without a gate (None)."""
    if on is None:
        return h
    return h * F.one_hot(on, h.shape[1]).to(h)[:, :, None]


def on_weights(h: Float[Tensor, "B J N"], on: Tensor | None) -> Float[Tensor, "B J"]:
    """How much each capsule is on: one for `on` (B,), given weights `on` (B, J), or equal for all that are not 0."""
    if on is None:
        active = (h != 0).any(-1).to(h)
        return active / active.sum(-1, keepdim=True).clamp_min(1)
    return on if on.ndim == 2 else F.one_hot(on, h.shape[1]).to(h)


def place(h_BN: Float[Tensor, "B N"], on: Int[Tensor, " B"], capsules: int) -> Float[Tensor, "B J N"]:
    """The state in which capsule `on` has pose h and all others are 0."""
    return F.one_hot(on, capsules).to(h_BN)[:, :, None] * h_BN[:, None]


def by_capsule(
    capsule: Int[Tensor, " n"], capsules: int
) -> tuple[Int[Tensor, "J P"], Int[Tensor, " n"], Float[Tensor, "J P"]]:
    """Where each capsule occurs, in P places; which of its places each entry has; and 0 for spare places, else 1."""
    order = torch.argsort(capsule, stable=True)
    count = torch.bincount(capsule, minlength=capsules)
    place = torch.empty_like(capsule)
    place[order] = torch.arange(len(capsule), device=capsule.device) - (count.cumsum(0) - count)[capsule[order]]
    rows = capsule.new_zeros(capsules, int(count.max()))
    rows[capsule, place] = torch.arange(len(capsule), device=capsule.device)
    return rows, place, (torch.arange(rows.shape[1], device=capsule.device) < count[:, None]).float()
