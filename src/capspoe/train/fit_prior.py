"""The prior of every capsule and the logit scale, fitted to the codes after training."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe import distributed
from capspoe.data import evenly_spaced
from capspoe.model.network import Network
from capspoe.train.loops import code_batch

PRIOR_IMAGES = 4000  # images of a capsule that its prior is fitted to
LOGIT_SCALES = (5.0, 3.0, 2.0, 1.5, 1.2)  # tried in this order; then 1
BRIGHTNESS_CHANGE = 0.1  # mean change of the mean image's pixels that is still accepted
BRIGHTNESS_IMAGES = 512

Poses = tuple[np.ndarray, np.ndarray]  # images, and the z of a capsule for each


@torch.no_grad()
def fit_prior(network: Network, codes: np.ndarray, components: int | None = None) -> None:
    """Fit the prior of every capsule to the images for which it is on (all images without the gate)."""
    use, poses = poses_of_capsules(network, codes)
    if distributed.is_main():
        total = use.sum()  # 0 if all z are: equal images, no gate and no biases
        network.prior.use.copy_(use / total if total > 0 else torch.full_like(use, 1 / len(use)))
        for j, z in enumerate(poses):
            network.prior.fit(j, z, network.config.seed, components)
        network.logit_scale.fill_(find_logit_scale(network, codes))
    distributed.broadcast(*network.prior.state_dict().values(), network.logit_scale)


def poses_of_capsules(network: Network, codes: np.ndarray) -> tuple[Float[Tensor, " J"], list[np.ndarray]]:
    """The total P(on) of each capsule, and z (n, N) of some of its images; each process reads its part.

    The images are the first in a random order of all: folders are sorted by class, and any number of processes
    chooses the same.
    """
    J, N = network.top.upper
    use, place = torch.zeros(J), np.random.default_rng(0).permutation(len(codes))
    kept: list[list[Poses]] = [[(np.empty(0, int), np.empty((0, N), np.float32))] for _ in range(J)]

    def chosen(parts: Sequence[Poses]) -> Poses:
        index, z = (np.concatenate(each) for each in zip(*parts, strict=True))
        first = np.sort(np.argsort(place[index])[:PRIOR_IMAGES])
        return index[first], z[first]

    for start in distributed.split(np.arange(0, len(codes), 512)):
        index = np.arange(start, min(start + 512, len(codes)))
        up = network.up_from_code(code_batch(codes, index, network.device))
        use += up.on.cpu().sum(0)
        winner, z = up.winner.cpu().numpy(), up.z.cpu().numpy()
        for j, own in enumerate(kept):
            mine = winner == j if up.exclusive else slice(None)
            own.append((index[mine], z[mine, j]))
            if len(own) > PRIOR_IMAGES // 64:
                own[:] = [chosen(own)]
    distributed.all_reduce(use)
    parts = distributed.gather([chosen(own) for own in kept])
    return use, [chosen(own)[1] for own in zip(*parts, strict=True)]


def find_logit_scale(network: Network, codes: np.ndarray) -> float:
    """The largest logit scale that preserves the mean brightness of images decoded from their capsules.

    A larger scale is sharper and more varied, but one that takes codes far from those of images bleaches or darkens
    everything: at 5 the mean image changes by .01 on MNIST, .06 on Fashion-MNIST and .29 on CIFAR-10.
    """
    some = evenly_spaced(len(codes), BRIGHTNESS_IMAGES)
    parts = [code_batch(codes, index, network.device) for index in np.array_split(some, -(-len(some) // 32))]
    ups = [network.up_from_code(x) for x in parts]

    def mean_image(images: Iterable[Tensor]) -> Tensor:
        return torch.stack([part.sum(0) for part in images]).sum(0) / len(some)

    def by_capsules(scale: float) -> Tensor:
        return mean_image(network.down(u.state, None, scale, u.winner if u.exclusive else None) for u in ups)

    return largest_logit_scale(by_capsules, mean_image(map(network.codec.decode, parts)))


def largest_logit_scale(mean_image: Callable[[float], Tensor], before: Tensor) -> float:
    """The largest logit scale at which the mean image, as a function of the scale, is still close to `before`."""
    close = (s for s in LOGIT_SCALES if float((mean_image(s) - before).abs().mean()) <= BRIGHTNESS_CHANGE)
    return next(close, 1.0)
