"""The prior of each capsule's pose: the distribution that its own training images induce."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from capspoe.model.noise import Noise

CAPSULE_STREAM = 100  # streams of random numbers; 101 and 102 follow in `sample`
GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
IMAGES_PER_PARAMETER = 5  # images per dimension and component; with fewer a mixture gets fewer components


@dataclass(frozen=True)
class Sampling:
    """How images are generated unless a call says otherwise.

    prior          name of the prior that poses are drawn from; `infer.sample.PRIORS` lists them
    prior_scale    factor on the fitted prior's standard deviation (sampling temperature); None takes the one that was
                   fitted after training
    logit_scale    factor on the decoded code's logits; None takes the one that was fitted after training
    """

    prior: str = "fitted"
    prior_scale: float | None = None
    logit_scale: float | None = None


class CapsulePrior(nn.Module):
    """For each capsule a Gaussian mixture over its pre-activations z, and one Gaussian that whitens them.

    use (J,)                          share of the images for which the capsule is on
    weight (J, K), mean (J, K, N)     the mixture
    factor (J, K, N, N)               z = mean + factor e has the component's covariance for standard normal e
    centre (J, N), axes (J, N, N)     mean and principal axes of all the capsule's z: column k of axes is the
                                      k-th axis, one standard deviation long, longest first
    scale ()                          factor on deviations from a component's mean in `sample`
    """

    use: Tensor
    weight: Tensor
    mean: Tensor
    factor: Tensor
    centre: Tensor
    axes: Tensor
    scale: Tensor

    def __init__(self, capsules: int, neurons: int, components: int = 16) -> None:
        super().__init__()
        J, N, K = capsules, neurons, components
        eye = torch.eye(N)
        self.register_buffer("use", torch.full((J,), 1 / J))
        self.register_buffer("weight", torch.full((J, K), 1 / K))
        self.register_buffer("mean", torch.zeros(J, K, N))
        self.register_buffer("factor", eye.expand(J, K, N, N).clone())
        self.register_buffer("centre", torch.zeros(J, N))
        self.register_buffer("axes", eye.expand(J, N, N).clone())
        self.register_buffer("scale", torch.ones(()))

    def fit(self, capsule: int, z: np.ndarray, seed: int = 0, components: int | None = None) -> None:
        """Fit the capsule's prior to the pre-activations (n, N) of its images; no images leave it unchanged.

        `components` limits the number of Gaussians.
        """
        from sklearn.exceptions import ConvergenceWarning  # not above: importing scikit-learn takes a second
        from sklearn.mixture import GaussianMixture

        n, N = z.shape
        if n == 0:
            return
        z = np.asarray(z, np.float64)
        covariance = np.cov(z.T, bias=True).reshape(N, N) if n > 1 else np.zeros((N, N))
        values, vectors = np.linalg.eigh(covariance)
        order = np.argsort(values)[::-1]
        largest = np.abs(vectors).argmax(0)
        vectors = vectors * np.sign(vectors[largest, np.arange(N)])  # fix the sign of each axis
        scale = np.sqrt(np.clip(values[order], 0, None))
        K = int(np.clip(n // (IMAGES_PER_PARAMETER * N), 1, components or self.weight.shape[1]))
        ridge = 1e-3 * max(values.mean(), 1e-6)
        mixture = GaussianMixture(K, reg_covar=ridge, random_state=seed % 2**32, max_iter=100, tol=1e-2)
        # The best iterate is good enough.
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            mixture.fit(z if n > 1 else np.repeat(z, 2, 0))
        self.weight[capsule], self.mean[capsule], self.factor[capsule] = 0, 0, 0  # of components beyond K
        self.weight[capsule, :K] = torch.as_tensor(mixture.weights_)
        self.mean[capsule, :K] = torch.as_tensor(mixture.means_)
        self.factor[capsule, :K] = torch.as_tensor(np.linalg.cholesky(mixture.covariances_))
        self.centre[capsule] = torch.as_tensor(z.mean(0))
        self.axes[capsule] = torch.as_tensor(vectors[:, order] * scale)

    def choose(self, noise: Noise) -> Int[Tensor, " B"]:
        """Capsules in proportion to their use, for the samples that the noise is of.

        Sample k takes the capsule at frac(u + k g) of the cumulative use, where g is the golden ratio and u depends
        on the seed. Any stretch of this sequence lies evenly between 0 and 1, so that n samples have each capsule in
        proportion to within a few, where independent draws are off by about sqrt(n).
        """
        first = Noise(noise.seed, noise.step, torch.zeros(1, dtype=torch.int64), torch.float64)
        offset = first.uniform(CAPSULE_STREAM)
        place_B = (offset + GOLDEN_RATIO * noise.index.cpu().double()).frac()
        cumulative_J = self.use.cpu().double().cumsum(0)
        capsule = torch.searchsorted(cumulative_J, place_B * cumulative_J[-1], right=True)
        return capsule.clamp(max=len(self.use) - 1).to(self.use.device)

    def sample(self, capsule: Int[Tensor, " B"], noise: Noise, scale: float | None = None) -> Float[Tensor, "B N"]:
        """z of the given capsules, from their mixtures; None takes the fitted scale."""
        component = noise.choose(101, self.weight[capsule])
        factor = self.scale if scale is None else scale
        e_BN = factor * noise.normal(102, self.mean.shape[-1])
        deviation_BN = torch.einsum("bnk,bk->bn", self.factor[capsule, component], e_BN)
        return self.mean[capsule, component] + deviation_BN

    def from_white(self, capsule: Int[Tensor, " B"], white: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """z from a whitened pose, which has zero mean and unit variance over the capsule's images."""
        return self.centre[capsule] + torch.einsum("bnk,bk->bn", self.axes[capsule], white)

    def to_white(self, capsule: Int[Tensor, " B"], z: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """The inverse of `from_white`; 0 along axes on which the capsule's images do not vary."""
        axes_BNK = self.axes[capsule]
        variance_BK = axes_BNK.square().sum(1)  # the axes are orthogonal
        flat = variance_BK <= 1e-10 * variance_BK.amax(-1, keepdim=True)
        along = torch.einsum("bnk,bn->bk", axes_BNK, z - self.centre[capsule])
        return torch.where(flat, 0, along / torch.where(flat, 1, variance_BK))
