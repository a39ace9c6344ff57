r"""Gates: which upper capsules are on.

A new gate is one class that derives from `Gate` (any number of capsules on) or from `OneOn` (exactly one), an entry
in `GATES`, and its name among the choices of the setting `gate`. Only two methods have no default: `on_probability`
and `total_evidence`.

Shapes: z (B, J, N); log_evidence (B, J) is F_j; the gate's bias d is (J,); `on` (B,) is the capsule that is on, or
None where all of them are.
"""

import math
from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.biases import OwnBias, SharedBias, VisibleBias
from capspoe.model.noise import Noise
from capspoe.model.routing import squash_length


class Gate(ABC):
    """Any number of capsules is on."""

    name: str
    caption: str  # for figures
    one_on = False  # whether exactly one capsule is on
    bias: VisibleBias = SharedBias()

    @abstractmethod
    def on_probability(self, z: Tensor, log_evidence: Tensor, d: Tensor, temperature: float) -> Float[Tensor, "B J"]:
        """P(capsule j is on | x)."""

    @abstractmethod
    def total_evidence(self, log_evidence: Float[Tensor, "B J"], d: Float[Tensor, " J"]) -> Float[Tensor, " B"]:
        """log of the sum of exp(-E) over all hidden states, without the bias that capsules share."""

    # What a hidden state looks like.

    def choose(self, probability: Float[Tensor, "B J"], noise: Noise, stream: int) -> Int[Tensor, " B"] | None:
        """Draw the capsule that is on; None where all of them are."""
        return None

    def mask(self, h: Float[Tensor, "B J N"], on: Int[Tensor, " B"] | None) -> Float[Tensor, "B J N"]:
        """h with the capsules that are off set to 0."""
        return h

    def energy(self, d: Float[Tensor, " J"], on: Int[Tensor, " B"] | None) -> Tensor | float:
        """The gate's term of the energy, (B,)."""
        return 0.0

    def members(self, winner: Int[Tensor, " B"], capsule: int) -> Bool[Tensor, " B"]:
        """The images whose pose in this capsule counts, given the most probable capsule of each image."""
        return torch.ones_like(winner, dtype=torch.bool)

    def check_on(self, capsules: int) -> None:  # noqa: B027
        """Raise an InputError if this many capsules cannot be on at once."""

    # Training.

    def gradient_gain(self, capsules: int) -> float:
        """Factor on the gradient of contrastive divergence."""
        return 1.0

    def balance(  # noqa: B027
        self, d: Tensor, use: Float[Tensor, " J"], rate: float, share: Float[Tensor, " J"] | None
    ) -> None:
        """Move d, in place, so that the capsules' use approaches their shares (default: equal)."""

    def collapsed(self, use: list[float], images: int) -> bool:
        """Whether one capsule takes a whole batch that is too large for that to happen by chance."""
        return False


class NoGate(Gate):
    """All capsules share every image: the paper's energy as written, with P(j on | x) = |squash(z_j)| (Eq. 7)."""

    name = "none"
    caption = "no gate"

    def on_probability(self, z: Tensor, log_evidence: Tensor, d: Tensor, temperature: float) -> Float[Tensor, "B J"]:
        return squash_length(z)

    def total_evidence(self, log_evidence: Float[Tensor, "B J"], d: Float[Tensor, " J"]) -> Float[Tensor, " B"]:
        return log_evidence.sum(-1)


class OneOn(Gate):
    """Exactly one capsule is on, and every capsule has a visible bias of its own."""

    caption = "one is on"
    one_on = True
    bias = OwnBias()

    def choose(self, probability: Float[Tensor, "B J"], noise: Noise, stream: int) -> Int[Tensor, " B"]:
        return noise.choose(stream, probability)

    def mask(self, h: Float[Tensor, "B J N"], on: Int[Tensor, " B"] | None) -> Float[Tensor, "B J N"]:
        if on is None:
            raise InputError("on is needed: exactly one capsule is on")
        return only(h, on)

    def energy(self, d: Float[Tensor, " J"], on: Int[Tensor, " B"] | None) -> Tensor | float:
        return -d[on]

    def members(self, winner: Int[Tensor, " B"], capsule: int) -> Bool[Tensor, " B"]:
        return winner == capsule

    def check_on(self, capsules: int) -> None:
        if capsules != 1:
            raise InputError(f"exactly one capsule is on in this network, not {capsules}; say which one counts")

    def gradient_gain(self, capsules: int) -> float:
        """Each capsule sees 1 / J of the images; sqrt(J) makes up for some of that."""
        return math.sqrt(capsules)

    def balance(self, d: Tensor, use: Float[Tensor, " J"], rate: float, share: Float[Tensor, " J"] | None) -> None:
        """d_j += rate (share_j - use_j) / share_j.

        Shares below 1 / 2J divide by that instead, or one image of a rare group would move d by hundreds.
        """
        J = len(use)
        if share is None:
            share = torch.full_like(use, 1 / J)
        d.add_(rate * (share - use) / share.clamp_min(0.5 / J))
        d.sub_(d.mean())

    def collapsed(self, use: list[float], images: int) -> bool:
        return images * math.log(len(use)) > 20 and max(use) > 0.995


class Winner(OneOn):
    r"""An implicit mixture of RBMs (Nair and Hinton 2008) with capsules as components.

    .. math:: P(j \text{ on} \mid x) = \text{softmax}_j((F_j + d_j) / T)
    """

    name = "winner"

    def on_probability(self, z: Tensor, log_evidence: Tensor, d: Tensor, temperature: float) -> Float[Tensor, "B J"]:
        return torch.softmax((log_evidence + d) / temperature, dim=-1)

    def total_evidence(self, log_evidence: Float[Tensor, "B J"], d: Float[Tensor, " J"]) -> Float[Tensor, " B"]:
        return torch.logsumexp(log_evidence + d, -1)


GATES: dict[str, Gate] = {gate.name: gate for gate in (Winner(), NoGate())}


def on_weights(h: Float[Tensor, "B J N"], on: Tensor | None) -> Float[Tensor, "B J"]:
    """How much each capsule is on: one for `on` (B,), given weights `on` (B, J), or equal for all that are not 0."""
    if on is None:
        active = (h != 0).any(-1).to(h)
        return active / active.sum(-1, keepdim=True).clamp_min(1)
    if on.ndim == 2:
        return on
    return F.one_hot(on, h.shape[1]).to(h)


def only(h: Float[Tensor, "B J N"], on: Int[Tensor, " B"]) -> Float[Tensor, "B J N"]:
    """h with every capsule but `on` set to 0."""
    return h * F.one_hot(on, h.shape[1]).to(h)[:, :, None]


def place(pose: Float[Tensor, "B N"], on: Int[Tensor, " B"], capsules: int) -> Float[Tensor, "B J N"]:
    """The state in which capsule `on` has this pose and all others are 0."""
    return F.one_hot(on, capsules).to(pose)[:, :, None] * pose[:, None]
