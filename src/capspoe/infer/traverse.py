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
    """Pre-activations z (N, starts, len(at), N): dimension k of the pose moved alone, from several starts.

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
    at = np.linspace(-2.5, 2.5, 11) if at is None else np.asarray(at, np.float64)
    centre, axes = (t[capsule].cpu().double().numpy() for t in (network.prior.centre, network.prior.axes))
    rng = np.random.default_rng([seed % 2**64, capsule])
    start_SN = np.concatenate([np.zeros((1, N)), 0.7 * rng.standard_normal((starts - 1, N))])
    if basis == "principal":
        step_NN, moved = axes.T, np.eye(N)  # the coordinate that moves replaces the start's own
    else:
        step_NN, moved = np.diag(np.sqrt((axes**2).sum(1))), np.zeros((N, N))
    start_NSN = (start_SN[None] * (1 - moved)[:, None]) @ axes.T
    z = centre + start_NSN[:, :, None] + at[:, None] * step_NN[:, None, None]
    return torch.from_numpy(z).float().to(network.device)


@torch.no_grad()
def decode_poses(network: Network, capsule: int, z: Float[Tensor, "*rest N"]) -> np.ndarray:
    """What the capsule alone decodes to, (*rest, H, W, C)."""
    parts = [
        network.array(network.decode_pose(torch.full((len(chunk),), capsule, device=z.device), chunk))
        for chunk in z.reshape(-1, z.shape[-1]).split(CHUNK)
    ]
    return np.concatenate(parts).reshape(*z.shape[:-1], *network.image)
