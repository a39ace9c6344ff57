"""Traversals: one dimension of a capsule's pose moves while the rest stay."""

from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.model.checks import check_capsule, check_choice, check_count
from capspoe.model.network import CHUNK, Network

Basis = Literal["neurons", "principal"]


def traverse(
    network: Network,
    capsule: int,
    basis: Basis = "neurons",
    at: np.ndarray | None = None,
    starts: int = 1,
    seed: int = 0,
) -> Float[Tensor, "N S T n"]:
    """Pre-activations z (N, starts, len(at), N): dimension k moved alone, from several starts.

    Parameters
    ----------
    capsule : the capsule
    basis : "neurons" moves single neurons, "principal" the principal axes of the capsule's prior
    at : positions in standard deviations of the prior; by default -2.5 to 2.5 in 11 steps
    starts : the first start is the prior's mean, the others are drawn around it
    seed : seed of the starts
    """
    J, N = network.top.upper
    check_capsule("capsule", capsule, J)
    check_choice("basis", basis, get_args(Basis))
    check_count("starts", starts)
    if at is None:
        at = np.linspace(-2.5, 2.5, 11)
    at = np.asarray(at, np.float64)
    centre = network.prior.centre[capsule].cpu().double().numpy()
    axes = network.prior.axes[capsule].cpu().double().numpy()
    rng = np.random.default_rng([seed % 2**64, capsule])
    start_SN = np.concatenate([np.zeros((1, N)), 0.7 * rng.standard_normal((starts - 1, N))])
    if basis == "principal":
        # The coordinate that moves replaces the start's own.
        step_NN = axes.T
        moved = np.eye(N)
    else:
        # A neuron moves by its own standard deviation, away from the start.
        step_NN = np.diag(np.sqrt((axes**2).sum(1)))
        moved = np.zeros((N, N))
    start_NSN = (start_SN[None] * (1 - moved)[:, None]) @ axes.T
    z = centre + start_NSN[:, :, None] + at[:, None] * step_NN[:, None, None]
    return torch.from_numpy(z).float().to(network.device)


@torch.no_grad()
def decode_poses(network: Network, capsule: int, z: Float[Tensor, "*rest N"]) -> np.ndarray:
    """What the capsule alone decodes to, (*rest, H, W, C)."""
    parts = []
    for chunk in z.reshape(-1, z.shape[-1]).split(CHUNK):
        on = torch.full((len(chunk),), capsule, device=z.device)
        parts.append(network.array(network.decode_pose(on, chunk)))
    return np.concatenate(parts).reshape(*z.shape[:-1], *network.image)
