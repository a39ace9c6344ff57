r"""Where a capsule layer starts.

`RandomStart` sets the biases only: every capsule is its group's mean code, with small random weights.

`LowRankStart` also sets the weights, so that training begins where logistic PCA ends (a low-rank start: Béreux,
Decelle, Furtlehner and Seoane 2024). In each group, t (N,) are the whitened principal components of the codes, the
latents of the PCA baseline. Logistic regression decodes them,

.. math:: P(x \mid t) = \sigma(a + v^T t)

An RBM uses the same weights upwards, so that E[h | x] = W (x - p), where p is the group's mean code. With
:math:`h = A t` and :math:`W = A^{-1} v` both directions agree if

.. math:: A^2 t = v (x - p), \qquad \text{so} \qquad A^2 = \langle v (x - p)\, t^T \rangle

by least squares. The gate's bias makes each capsule as probable under the model as its group is among the images.

`MixtureStart` goes on by expectation maximisation of the mixture, with the logistic PCA as an approximate M-step.
Then the groups have done their work: each capsule has the images that it explains.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.data import evenly_spaced
from capspoe.infer.chains import PoseDensity
from capspoe.infer.likelihood import Mixture, Modes, far_starts
from capspoe.model.layer import MARGIN, CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.training.codes import code_batch
from capspoe.training.targets import GateTargets, group_means

MEAN_IMAGES = 10_000  # codes whose mean a layer starts from
GROUP_IMAGES = 1_000  # codes of a group that its principal components and its regression are fitted to
RIDGE = 0.02  # of the regression; of .003, .01, .03 and .08 on MNIST, .01 to .03 had the best likelihoods of codes
REGRESSION_STEPS = 30
NEGLIGIBLE = 0.03  # an image that counts less than this for a capsule is left out
POWER_STEPS = 3  # of the randomised singular value decomposition
POSES = 200  # draws that estimate the integral of a capsule's density
FAR_STARTS = 24  # random ones of the search for far modes
FAR_SQUARE = 4.0  # a mode is far if its squared distance, by the poses' covariance, is this many times the usual
FAR_MASS = 0.02  # share of the integral that a far mode may hold
RAISE, RAISES = 1.4, 8  # factor on the ridge while there is one, and how often at most
LARGEST_LOGIT = -math.log(MARGIN)  # of units that never change, as in `CapsuleLayer.start_from`


@dataclass(frozen=True)
class LayerInputs:
    """What a layer will learn: its inputs, and the groups that they form."""

    network: Network
    depth: int
    codes: np.ndarray
    targets: GateTargets | None

    @property
    def layer(self) -> CapsuleLayer:
        return self.network.stack[self.depth]

    def at(self, index: np.ndarray) -> Float[Tensor, "B I M"]:
        """The layer's input for these images."""
        return self.network.layer_input(code_batch(self.codes, index, self.network.device), self.depth)

    def mean(self) -> Float[Tensor, "I M"]:
        """The mean input, over evenly spaced codes."""
        index = evenly_spaced(len(self.codes), MEAN_IMAGES)
        # On the CPU: not every device has float64.
        total = torch.zeros(self.layer.lower, dtype=torch.float64)
        for start in range(0, len(index), 256):
            total += self.at(index[start : start + 256]).cpu().double().sum(0)
        return (total / len(index)).float()

    def groups(self, count: int) -> Iterator[Float[Tensor, "n I M"]]:
        """Up to `count` inputs of each capsule's group; without groups, of all images."""
        if self.targets is None:
            everything = self.at(evenly_spaced(len(self.codes), count))
            yield from itertools.repeat(everything, self.layer.upper[0])
            return
        capsule = self.targets.capsule.cpu().numpy()
        for j in range(self.layer.upper[0]):
            own = np.flatnonzero(capsule == j)
            yield self.at(own[evenly_spaced(len(own), count)])


class Start(Protocol):
    """Sets a layer's parameters before its first update."""

    def begin(self, inputs: LayerInputs) -> LayerInputs:
        """Returns the inputs, with the groups that the capsules have now."""
        ...


class RandomStart:
    """Every capsule starts at the mean of its group, with the random weights that it was made with."""

    @torch.no_grad()
    def begin(self, inputs: LayerInputs) -> LayerInputs:
        means = None
        if inputs.targets is not None:
            means = group_means(inputs.targets, inputs.codes, inputs.network)
        inputs.layer.start_from(inputs.mean(), means)
        return inputs


@dataclass(frozen=True)
class LowRankStart:
    """Every capsule starts as the logistic PCA of its group.

    Layers without groups, gaussian neurons or biases start at random.

    Parameters
    ----------
    images : codes of each group that it is fitted to
    ridge : l2 penalty of the regression
    steps : of the regression
    seed : of the draws that normalise each capsule's density
    avoid_far_modes : raise a capsule's ridge while its density has a heavy mode far from the poses of its group
    """

    images: int = GROUP_IMAGES
    ridge: float = RIDGE
    steps: int = REGRESSION_STEPS
    seed: int = 0
    avoid_far_modes: bool = False

    @torch.no_grad()
    def begin(self, inputs: LayerInputs) -> LayerInputs:
        RandomStart().begin(inputs)
        if inputs.targets is None or not self.suits(inputs.layer):
            return inputs
        groups = (Group.of(x_nIM) for x_nIM in inputs.groups(self.images))
        self.fit(inputs.layer, groups, inputs.targets.share.clamp_min(1 / len(inputs.codes)))
        return inputs

    @staticmethod
    def suits(layer: CapsuleLayer) -> bool:
        """Whether a layer can start like this."""
        return PoseDensity.exists(layer) and layer.bias is True

    def fit(self, layer: CapsuleLayer, groups: Iterable["Group"], share: Float[Tensor, " J"]) -> None:
        """Make each capsule the logistic PCA of its group, and as probable as its share."""
        mean, covariance = self.set_weights(layer, groups)
        layer.d.copy_(share.log())
        layer.d.sub_(log_integrals(layer, mean, covariance, self.seed) - (layer.a * layer.mu).sum((1, 2)))
        layer.d.sub_(layer.d.mean())

    def set_weights(
        self, layer: CapsuleLayer, groups: Iterable["Group"]
    ) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N N"]]:
        """Set a, b and w; return the mean and the covariance of each group's poses h ~ P(h | x)."""
        J, N = layer.upper
        covariances = torch.eye(N).to(layer.b).repeat(J, 1, 1)
        for j, group in enumerate(groups):
            x_nV = group.x_nIM.flatten(1).to(layer.w_JNMI)
            pca = self.logistic_pca(x_nV, group.share_n, N)
            rank = len(pca.w_NV)
            if rank == 0:
                continue
            # Neurons beyond the group's rank keep their random weights.
            layer.w_JNMI[j, :rank] = pca.w_NV.unflatten(1, layer.lower).transpose(1, 2)
            layer.a[j] = pca.a_V.view(layer.lower)
            offset_IM = (group.share_n @ x_nV).view(layer.lower) - layer.mu
            layer.b[j] = -torch.einsum("nmi,im->n", layer.w_JNMI[j], offset_IM)
            covariances[j, :rank, :rank] += pca.covariance_NN
        return torch.zeros(J, N).to(layer.b), covariances

    def logistic_pca(
        self, x_nV: Float[Tensor, "n V"], share_n: Float[Tensor, " n"], dimensions: int
    ) -> "LogisticPCA":
        """Logistic PCA with the smallest ridge, from `ridge` upwards, at which no far mode counts."""
        ridge = self.ridge
        for _ in range(RAISES):
            pca = LogisticPCA.fit(x_nV, share_n, dimensions, ridge, self.steps)
            if not self.avoid_far_modes or len(pca.w_NV) == 0 or not pca.has_far_mode(share_n @ x_nV, self.seed):
                break
            ridge *= RAISE
        return pca


class Group(NamedTuple):
    """Inputs of a capsule, and how much each of them counts; these shares sum to 1."""

    x_nIM: Float[Tensor, "n I M"]
    share_n: Float[Tensor, " n"]

    @classmethod
    def of(cls, x_nIM: Float[Tensor, "n I M"]) -> "Group":
        """All inputs count alike."""
        return cls(x_nIM, x_nIM.new_full((len(x_nIM),), 1 / max(len(x_nIM), 1)))


@dataclass(frozen=True)
class MixtureStart:
    r"""A low-rank start, and rounds of expectation maximisation: capsules take the images that they explain.

    An image counts for capsule j in proportion to :math:`P(j \text{ on} \mid x)^{1 / T}`. With T above 1 an image
    counts for several capsules, so that each is fitted to more images than are its own and overfits less.

    Parameters
    ----------
    low_rank : the logistic PCA; its `images` is the largest number of images of a capsule, those that count most
    rounds : of expectation maximisation
    temperature : T
    """

    low_rank: LowRankStart
    rounds: int = 1
    temperature: float = 1.0

    @classmethod
    def of(cls, seed: int) -> "MixtureStart":
        """What had the best likelihoods of held-out images (benchmarks/quality/likelihood.py)."""
        return cls(LowRankStart(1_500, RIDGE, 60, seed, avoid_far_modes=True), rounds=1, temperature=20.0)

    @torch.no_grad()
    def begin(self, inputs: LayerInputs) -> LayerInputs:
        random_weights = inputs.layer.w_JNMI.clone()
        self.low_rank.begin(inputs)
        if inputs.targets is None or not self.low_rank.suits(inputs.layer):
            return inputs
        for _ in range(self.rounds):
            share = on_probabilities(inputs, 1.0).mean(0)
            weight_nJ = on_probabilities(inputs, self.temperature)
            # A capsule that loses its images must not keep weights that it had for them.
            inputs.layer.w_JNMI.copy_(random_weights)
            self.low_rank.fit(
                inputs.layer,
                (self.group(inputs, weight_n) for weight_n in weight_nJ.T),
                share.clamp_min(1 / len(inputs.codes)),
            )
        groups = on_probabilities(inputs, 1.0).argmax(1).int()
        return replace(inputs, targets=GateTargets.of(groups, inputs.network, len(inputs.codes)))

    def group(self, inputs: LayerInputs, weight_n: Float[Tensor, " n"]) -> Group:
        """The images that count most for a capsule."""
        enough = max(1, int((weight_n > NEGLIGIBLE).sum()))
        weight, index = weight_n.topk(min(self.low_rank.images, enough))
        return Group(inputs.at(index.cpu().numpy()), weight / weight.sum())


def on_probabilities(inputs: LayerInputs, temperature: float) -> Float[Tensor, "n J"]:
    """P(on | x) of all inputs."""
    layer = inputs.layer
    parts = []
    for index in np.array_split(np.arange(len(inputs.codes)), -(-len(inputs.codes) // 512)):
        x = inputs.at(index)
        parts.append(layer.on_probability(layer(x).z, x, temperature))
    return torch.cat(parts)


class LogisticPCA(NamedTuple):
    """An RBM that reconstructs codes from their principal components; see the top of this file."""

    w_NV: Float[Tensor, "N V"]
    a_V: Float[Tensor, " V"]
    covariance_NN: Float[Tensor, "N N"]  # A^2, the covariance of E[h | x] along the components

    @classmethod
    def fit(
        cls, x_nV: Float[Tensor, "n V"], share_n: Float[Tensor, " n"], dimensions: int, ridge: float, steps: int
    ) -> "LogisticPCA":
        """Fit to codes that count by their shares; it has fewer dimensions where the codes vary in fewer."""
        t_nN = whitened_components(x_nV, share_n, dimensions)
        a_V, v_NV = logistic_regression(x_nV, share_n, t_nN, ridge, steps)
        square_NN = (share_n[:, None] * t_nN).T @ (x_nV - share_n @ x_nV) @ v_NV.T
        values, vectors = torch.linalg.eigh((square_NN + square_NN.T) / 2)
        # Positive up to rounding: v and the components have the same directions.
        values = values.clamp_min(1e-6)
        inverse_NN = (vectors / values.sqrt()) @ vectors.T
        return cls(inverse_NN @ v_NV, a_V, (vectors * values) @ vectors.T)

    def has_far_mode(self, mean_V: Float[Tensor, " V"], seed: int) -> bool:
        """Whether a mode far from the poses of the codes, whose mean is given, holds part of the density's mass."""
        N = len(self.w_NV)
        density = PoseDensity(self.w_NV[None], self.a_V[None], -(self.w_NV @ mean_V)[None])
        modes = Modes.from_starts(density, far_starts(density, Noise.for_batch(FAR_STARTS, seed)))
        covariance_NN = self.covariance_NN + torch.eye(N).to(self.w_NV)
        square_K = (modes.h[0] @ torch.linalg.inv(covariance_NN) * modes.h[0]).sum(1)
        near = pose_log_integrals(density, mean_V.new_zeros(1, N), covariance_NN[None], seed)
        far = modes.log_mass[0].masked_fill(square_K < FAR_SQUARE * N, -torch.inf)
        return bool(torch.logsumexp(far, 0) + N / 2 * math.log(2 * math.pi) > near + math.log(FAR_MASS))


def whitened_components(
    x_nV: Float[Tensor, "n V"], share_n: Float[Tensor, " n"], dimensions: int
) -> Float[Tensor, "n N"]:
    """The leading principal components of codes that count by their shares, each with variance 1."""
    n, V = x_nV.shape
    rank = min(dimensions, n - 1, V)
    if rank < 1:
        return x_nV.new_zeros(n, 0)
    root_n1 = share_n.sqrt()[:, None]
    centred = root_n1 * (x_nV - share_n @ x_nV)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        u, scale, _ = torch.svd_lowrank(centred, min(rank + 8, n, V), POWER_STEPS)
    varies = scale[:rank] > 1e-6 * scale[0].clamp_min(1e-6)
    return u[:, :rank][:, varies] / root_n1


def logistic_regression(
    x_nV: Float[Tensor, "n V"], share_n: Float[Tensor, " n"], t_nN: Float[Tensor, "n N"], ridge: float, steps: int
) -> tuple[Float[Tensor, " V"], Float[Tensor, "N V"]]:
    """a and v of P(x = 1 | t) = sigmoid(a + v't) for whitened t, with the penalty ridge |v|^2 / 2 for each unit.

    The second derivative of the log likelihood is at most 1/4, so steps of 4 times the gradient never lower it
    (Böhning and Lindsay 1988).
    """
    a_V = torch.logit(share_n @ x_nV, eps=MARGIN)
    weighted_nN = share_n[:, None] * t_nN
    v_NV = x_nV.new_zeros(t_nN.shape[1], x_nV.shape[1])
    rate = 1 / (1 / 4 + ridge)
    for _ in range(steps):
        residual_nV = x_nV - torch.sigmoid(torch.addmm(a_V, t_nN, v_NV))
        a_V = (a_V + 4 * share_n @ residual_nV).clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
        v_NV = v_NV + rate * (weighted_nN.T @ residual_nV - ridge * v_NV)
    return a_V, v_NV


def log_integrals(
    layer: CapsuleLayer, mean: Float[Tensor, "J N"], covariance: Float[Tensor, "J N N"], seed: int
) -> Float[Tensor, " J"]:
    """log of the integral of each capsule's pose density, by importance sampling from a Gaussian."""
    return pose_log_integrals(PoseDensity.of(layer), mean, covariance, seed)


def pose_log_integrals(
    density: PoseDensity, mean: Float[Tensor, "J N"], covariance: Float[Tensor, "J N N"], seed: int
) -> Float[Tensor, " J"]:
    """The same for any densities of poses."""
    J = len(mean)
    proposal = Mixture(mean.new_zeros(J, 1), mean[:, None], torch.linalg.inv(covariance)[:, None])
    index = torch.arange(J * POSES, device=mean.device)
    h_JCN = proposal.sample(POSES, Noise(seed, 0, index, mean.dtype))
    log_weight = density.log_density(h_JCN) - proposal.log_density(h_JCN)
    return torch.logsumexp(log_weight, 1) - math.log(POSES)
