"""The prior of every capsule, its scale, and the logit scale, fitted to the codes after training."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe import distributed
from capspoe.data import evenly_spaced
from capspoe.infer.frechet import frechet_distance
from capspoe.model.gates import place
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.training.codes import code_batch
from capspoe.training.stage import Stage, Step, Training
from capspoe.training.targets import TargetFinder, gate_targets

PRIOR_IMAGES = 4000  # images of a capsule that its prior is fitted to
BATCH = 512  # codes routed at once
LOGIT_SCALES = (5.0, 3.0, 2.0, 1.5, 1.2)  # tried in this order; then 1
BRIGHTNESS_CHANGE = 0.1  # largest mean change of the mean image's pixels that is accepted
BRIGHTNESS_IMAGES = 512
PRIOR_SCALES = tuple(round(1 + 0.1 * k, 1) for k in range(21))  # tried from the smallest
SCALE_SAMPLES = 2000  # codes that are drawn at each scale
SCALE_DIMENSIONS = 64  # principal components of the codes that are compared
SHADES_KEPT = 0.87  # smallest fraction of the shades between black and white that is accepted


@dataclass
class PriorStage(Stage):
    """Fit the prior of every capsule to the poses of its images: those of its target, if the gate has targets."""

    seed: int = 0
    targets: TargetFinder | None = None

    name = "prior"
    title = "fitting the prior of every capsule"

    def steps(self, count: int) -> int:
        return 0

    def begin(self, training: Training, first: int, state: dict[str, Tensor]) -> None:
        training.info(self.title)
        self.found = gate_targets(training, self.targets)

    def run(self, training: Training, first: int, last: int) -> Iterator[Step]:
        capsule = None if self.found is None else self.found.capsule.cpu().long()
        fit_prior(training.network, training.codes, self.seed, capsule=capsule)
        yield from ()


class Poses(NamedTuple):
    """Poses of one capsule."""

    image: np.ndarray  # (n,), the images that they belong to
    z: np.ndarray  # (n, N)

    @classmethod
    def joined(cls, parts: Sequence["Poses"]) -> "Poses":
        return cls(np.concatenate([part.image for part in parts]), np.concatenate([part.z for part in parts]))

    def first(self, rank: np.ndarray, count: int) -> "Poses":
        """The `count` poses whose images have the lowest rank, in the order of the images given."""
        chosen = np.sort(np.argsort(rank[self.image])[:count])
        return Poses(self.image[chosen], self.z[chosen])


@torch.no_grad()
def fit_prior(
    network: Network,
    codes: np.ndarray,
    seed: int = 0,
    components: int | None = None,
    capsule: Int[Tensor, " n"] | None = None,
) -> None:
    """Fit the prior of every capsule to the images for which it is on (all images without the gate).

    `capsule` says which one that is for each image; by default the energy does.
    """
    use, poses = poses_of_capsules(network, codes, capsule)
    if distributed.is_main():
        total = use.sum()  # 0 if all z are: equal images, no gate and no biases
        network.prior.use.copy_(use / total if total > 0 else torch.full_like(use, 1 / len(use)))
        for j, z in enumerate(poses):
            network.prior.fit(j, z, seed, components)
        network.prior.scale.fill_(find_prior_scale(network, codes, seed))
        network.logit_scale.fill_(find_logit_scale(network, codes))
    distributed.broadcast(*network.prior.state_dict().values(), network.logit_scale)


def poses_of_capsules(
    network: Network, codes: np.ndarray, capsule: Int[Tensor, " n"] | None = None
) -> tuple[Float[Tensor, " J"], list[np.ndarray]]:
    """The total P(on) of each capsule, and z (n, N) of some of its images; each process reads its part.

    The images are the first in a random order of all: folders are sorted by class, and any number of processes
    chooses the same.
    """
    J, N = network.top.upper
    use = torch.zeros(J)
    rank = np.random.default_rng(0).permutation(len(codes))
    none = Poses(np.empty(0, int), np.empty((0, N), np.float32))
    parts: list[list[Poses]] = [[none] for _ in range(J)]
    for start in distributed.split(np.arange(0, len(codes), BATCH)):
        index = np.arange(start, min(start + BATCH, len(codes)))
        up = network.up_from_code(code_batch(codes, index, network.device))
        if capsule is None:
            use += up.on.cpu().sum(0)
            winner = up.winner.cpu()
        else:
            winner = capsule[torch.from_numpy(index)]
            use += torch.bincount(winner, minlength=J)
        z = up.z.cpu().numpy()
        for j, own in enumerate(parts):
            mine = up.gate.members(winner, j).numpy()
            own.append(Poses(index[mine], z[mine, j]))
            if len(own) > PRIOR_IMAGES // 64:  # so that memory does not grow with the images
                own[:] = [Poses.joined(own).first(rank, PRIOR_IMAGES)]
    distributed.all_reduce(use)
    processes = distributed.gather([Poses.joined(own).first(rank, PRIOR_IMAGES) for own in parts])
    chosen = [Poses.joined(own).first(rank, PRIOR_IMAGES) for own in zip(*processes, strict=True)]
    return use, [poses.z for poses in chosen]


@torch.no_grad()
def find_prior_scale(network: Network, codes: np.ndarray, seed: int = 0) -> float:
    """The scale of the fitted prior at which codes from it are distributed most like the codes of images."""
    noise = Noise(seed, 0, torch.arange(SCALE_SAMPLES, device=network.device))
    capsule = network.prior.choose(noise)

    def draw(scale: float) -> np.ndarray:
        z = network.prior.sample(capsule, noise, scale)
        parts = []
        for own, own_z in zip(capsule.split(BATCH), z.split(BATCH), strict=True):
            h = place(network.top.hidden_mean(own_z), own, network.top.upper[0])
            parts.append(network.down_to_code(h, None, 1.0, own).cpu().numpy())
        return np.concatenate(parts)

    return best_prior_scale(draw, codes)


def best_prior_scale(draw: Callable[[float], np.ndarray], codes: np.ndarray) -> float:
    """The scale at which the drawn codes (k, ...) have the least Fréchet distance to the codes (n, ...).

    P(x | h) averages over what a pose leaves open, so codes from the prior vary less than those of images. A larger
    scale makes up for that; how large depends on the data, and on how many images the prior was fitted to.
    """
    from sklearn.decomposition import PCA  # not above: importing scikit-learn takes a second

    some = codes[evenly_spaced(len(codes), SCALE_SAMPLES)]
    real = some.reshape(len(some), -1).astype(np.float32)
    if len(real) == 1:
        return PRIOR_SCALES[0]  # a single code has no spread
    with np.errstate(invalid="ignore"):  # all codes are equal: zero variance
        components = PCA(min(SCALE_DIMENSIONS, *real.shape), random_state=0).fit(real)
    known = components.transform(real)

    def distance(scale: float) -> float:
        return frechet_distance(known, components.transform(draw(scale).reshape(-1, real.shape[1])))

    best = PRIOR_SCALES[0]
    least = distance(best)
    for scale in PRIOR_SCALES[1:]:
        now = distance(scale)
        # It falls, then rises.
        if now >= least:
            break
        best, least = scale, now
    return best


class Look(NamedTuple):
    """What a logit scale must preserve of images (n, ...) in [0, 1].

    mean      the mean image
    shades    mean of p (1 - p) over the pixels p: 0 if they are black and white
    """

    mean: Tensor
    shades: float

    @classmethod
    def of(cls, images: Tensor) -> "Look":
        return cls(images.mean(0), float((images * (1 - images)).mean()))

    def preserves(self, before: "Look") -> bool:
        """Whether brightness and shades are still about those of `before`."""
        change = float((self.mean - before.mean).abs().mean())
        return change <= BRIGHTNESS_CHANGE and self.shades >= SHADES_KEPT * before.shades


def find_logit_scale(network: Network, codes: np.ndarray) -> float:
    """The largest logit scale that preserves brightness and shades of images decoded from their capsules.

    A larger scale gives sharper and more varied images. But where it moves codes far from those of real images, it
    bleaches or darkens everything, and leaves a grid. Images of strokes are black and white anyway: MNIST bears 5.
    """
    some = evenly_spaced(len(codes), BRIGHTNESS_IMAGES)
    parts = [code_batch(codes, index, network.device) for index in np.array_split(some, -(-len(some) // 32))]
    ups = [network.up_from_code(x) for x in parts]

    def by_capsules(scale: float) -> Look:
        return Look.of(torch.cat([network.down(up.state, None, scale, up.winner) for up in ups]))

    return largest_logit_scale(by_capsules, Look.of(torch.cat([network.codec.decode(x) for x in parts])))


def largest_logit_scale(look: Callable[[float], Look], before: Look) -> float:
    """The largest logit scale at which images look about as before; `look` is a function of the scale."""
    for scale in LOGIT_SCALES:
        if look(scale).preserves(before):
            return scale
    return 1.0
