"""Generation: draw poses from a prior and decode them, with further Gibbs steps on request."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import InputError
from capspoe.infer.chains import PoseDensity, hmc, run_chains
from capspoe.model.checks import check_capsule, check_choice, check_count, check_seed
from capspoe.model.gates import place
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import CHUNK, Network
from capspoe.model.noise import Noise
from capspoe.model.routed import Slots

STEPS = 200  # transitions of Hamiltonian Monte Carlo from noise to a sample
LEAPS = 64  # leapfrog steps of each: poses are many steps wide, and chains that turn back early mix slowly
STANDARD_STREAM = 102  # streams of random numbers; 100 to 102 belong to the fitted prior
CHAIN_STREAM = 103


class Samples(NamedTuple):
    """Generated images.

    images     (count, H, W, C): float32 in [0, 1]
    capsule    (count,): the capsule that was on
    """

    images: np.ndarray
    capsule: np.ndarray


def sample(
    network: Network,
    count: int,
    capsule: int | list[int] | None = None,
    prior: str | None = None,
    gibbs: int = 0,
    seed: int = 0,
    prior_scale: float | None = None,
) -> Samples:
    """Generate images. Image k depends only on the seed and on k, not on how many are drawn with it.

    With prior "model" it does depend on their number: long chains amplify the rounding of the last digit.

    Parameters
    ----------
    count : number of images in all
    capsule : a capsule, a list to cycle through, or None: in exact proportion to the capsules' use
    prior : a name in `PRIORS`: "fitted", the distribution of the capsule's own training images; "model", the energy's
        own, by chains from noise; "standard", the paper's sigmoid(N(0, 1)); None, the model's default
    gibbs : steps of the energy's own chain: codes drawn, routed, poses drawn; with the gate the same capsule stays on
    seed : the same seed gives the same images
    prior_scale : factor on the standard deviation of the fitted prior (sampling temperature); None, the model's own
    """
    check_count("count", count)
    cycle = None
    if capsule is not None:
        cycle = list(capsule) if isinstance(capsule, (list, tuple, np.ndarray)) else [capsule]
        if not cycle:
            raise InputError("capsule is an empty list")
        for number in cycle:
            check_capsule("capsule", number, network.top.upper[0])
    chunks = []
    for start in range(0, count, CHUNK):
        index = np.arange(start, min(start + CHUNK, count))
        on = None if cycle is None else np.array(cycle)[index % len(cycle)]
        chunks.append(sample_at(network, index, on, prior, gibbs, seed, prior_scale))
    return Samples(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


@torch.no_grad()
def sample_at(
    network: Network,
    index: np.ndarray,
    on: np.ndarray | None = None,
    prior: str | None = None,
    gibbs: int = 0,
    seed: int = 0,
    prior_scale: float | None = None,
) -> Samples:
    """The images numbered `index` in the endless sequence of this seed."""
    check_count("gibbs", gibbs, minimum=0)
    check_seed(seed)
    prior = prior or network.sampling.prior
    check_choice("prior", prior, tuple(PRIORS))
    scale = network.sampling.prior_scale if prior_scale is None else prior_scale
    if scale is not None and not 0 <= scale <= 100:
        raise InputError(f"prior_scale must be between 0 and 100, not {scale!r}")
    logit_scale = network.sampling.logit_scale
    if logit_scale is None and (gibbs or not PRIORS[prior].sharpened):
        logit_scale = 1.0  # unless a scale was set
    rows = torch.from_numpy(index).to(network.device)
    noise = Noise(int(seed), 0, rows)
    chosen = network.prior.choose(noise) if on is None else torch.from_numpy(on).to(network.device)
    pose = PRIORS[prior].draw(network, chosen, noise, scale)
    h = place(pose, chosen, network.top.upper[0])
    c = network.top.reverse(h)
    for step in range(gibbs):
        c, h = gibbs_step(network.top, h, c, chosen, Noise(int(seed), 1 + step, rows))
    images = network.down(h, c, logit_scale, chosen)
    return Samples(network.array(images), chosen.cpu().numpy())


# Priors: each draws the poses (B, N) of the capsules that are on.


class Prior(NamedTuple):
    """A way to draw poses."""

    draw: Callable[[Network, Int[Tensor, " B"], Noise, float | None], Float[Tensor, "B N"]]
    sharpened: bool = False  # whether the logit scale that was fitted after training applies to its poses


def fitted(network: Network, on: Int[Tensor, " B"], noise: Noise, scale: float | None) -> Float[Tensor, "B N"]:
    """Poses like those of the capsule's own training images."""
    return network.top.hidden_mean(network.prior.sample(on, noise, scale))


def standard(network: Network, on: Int[Tensor, " B"], noise: Noise, scale: float | None) -> Float[Tensor, "B N"]:
    """The paper's: sigmoid(N(0, 1)) (section 4.1)."""
    return torch.sigmoid(noise.normal(STANDARD_STREAM, network.top.upper[1]))


def model(network: Network, on: Int[Tensor, " B"], noise: Noise, scale: float | None) -> Float[Tensor, "B N"]:
    """Poses from the energy itself."""
    return equilibrium(network.top, on, noise, STEPS)


PRIORS: dict[str, Prior] = {
    "fitted": Prior(fitted, sharpened=True),
    "model": Prior(model),
    "standard": Prior(standard),
}


def equilibrium(layer: CapsuleLayer, on: Int[Tensor, " B"], noise: Noise, steps: int) -> Float[Tensor, "B N"]:
    """Poses from the energy itself: chains of Hamiltonian Monte Carlo in the capsules that are on, from noise."""
    density = PoseDensity.of(layer)
    slots = Slots.of(on, layer.upper[0])  # spare chains repeat the first
    index = noise.index[slots.entry_JP.flatten()]
    h = noise.normal(CHAIN_STREAM, layer.upper[1])[slots.entry_JP]
    for step in range(steps):
        h = hmc(density, h, Noise(noise.seed, 1 + step, index), LEAPS).h
    return h[on, slots.slot]


def r_hat(layer: CapsuleLayer, chains: int = 8, seed: int = 0) -> Float[Tensor, " J"]:
    """Split R-hat of each capsule's chains over the second half of the steps from noise that a sample takes."""
    J, N = layer.upper
    index = torch.arange(J * chains, device=layer.d.device)
    start = Noise(seed, 0, index).normal(CHAIN_STREAM, N).view(J, chains, N)
    return run_chains(PoseDensity.of(layer), start, STEPS, LEAPS, seed).after(STEPS // 2).r_hat()


def gibbs_step(
    layer: CapsuleLayer,
    h: Float[Tensor, "B J N"],
    c: Float[Tensor, "B J I"] | None,
    on: Int[Tensor, " B"],
    noise: Noise,
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """x ~ P(x | h) with the routing weights c, then h ~ P(h | x) with those that x routes by; both are returned.

    This is the chain that contrastive divergence trains: states are drawn, x goes down by the weights of its way up.
    With the gate the capsule that is on stays on; without it all capsules take part. With one routing iteration the
    chain is exact.
    """
    mean = layer.visible_mean(h, c, on)
    x = (noise.uniform(0, *layer.lower) < mean).to(mean)
    c, z = layer(x)
    return c, layer.gate.mask(layer.sample_hidden(layer.hidden_mean(z), noise, 1), on)
