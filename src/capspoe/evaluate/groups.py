"""Linear models of the codes, treated like the capsules.

They get the same codes, as many groups and dimensions, the same images to fit on, the same mixture
prior, and the same rules for the prior scale and the logit scale. "Plain" leaves these out: one Gaussian for each
group, and both scales 1.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from capspoe.data import ArrayDataset, evenly_spaced
from capspoe.evaluate.data import EvaluationData, Output, Split
from capspoe.model.noise import Noise
from capspoe.model.prior import IMAGES_PER_PARAMETER, CapsulePrior
from capspoe.training.prior_stage import (
    BRIGHTNESS_IMAGES,
    PRIOR_IMAGES,
    SCALE_SAMPLES,
    Look,
    best_prior_scale,
    largest_logit_scale,
)
from capspoe.training.spectral import majority, nearest, pca_points
from capspoe.training.stage import Training
from capspoe.training.targets import SpectralTargets
from capspoe.training.views import find_view

MIXTURE_DIMENSIONS = 64  # principal components of the codes, for the mixture of J K Gaussians
MIXTURE_IMAGES = 20_000  # codes that it is fitted to: all of them take ten minutes
FACTOR_ITERATIONS = 20

Models = dict[str, Callable[[], Output]]  # rows of the table
Groups = tuple[np.ndarray, np.ndarray]  # the group of every training and of every test image
Winner = Callable[[], np.ndarray | None]  # the group of every test code
Make = Callable[[int], Any]  # number of latents to a model of scikit-learn


def flat(split: Split) -> Float[np.ndarray, "n V"]:
    return split.codes.reshape(len(split.codes), -1).astype(np.float32)


def spectral(data: EvaluationData) -> Groups:
    """The gate's targets; a test image takes the majority of its nearest training images."""
    c = data.network.config
    training = Training(data.network, ArrayDataset(data.train.pixels), lambda: data.train.codes)
    targets = SpectralTargets(c.neighbours, c.seed, c.view, c.kinds).find(training)
    if targets is None:
        return kmeans(data)
    train = targets.numpy().astype(np.int64)
    if c.view == "codes":
        points = data.train.codes
        new_points = data.test.codes
    else:
        view = find_view(c.view, data.train.pixels, c.neighbours, c.seed)
        points = view.points(data.train.pixels)
        new_points = view.points(data.test.pixels)
    # Test images are projected on the components of the training images: both live in one space.
    known = pca_points(points, c.seed)
    new = pca_points(new_points, c.seed, fitted_to=points)
    return train, majority(train[nearest(new, known, c.neighbours)])


def kmeans(data: EvaluationData) -> Groups:
    clusters = KMeans(data.network.top.upper[0], n_init=3, random_state=0).fit(flat(data.train))
    return clusters.labels_, clusters.predict(flat(data.test))


class LinearGroups:
    """In every group of codes a linear model, and a prior of its latents like that of a capsule's pose."""

    def __init__(
        self,
        data: EvaluationData,
        group: np.ndarray,
        make: Make,
        dimensions: int,
        components: int,
    ) -> None:
        config = data.network.config
        codes = flat(data.train)
        # Number the groups anew, so that none is empty.
        group = np.unique(group, return_inverse=True)[1]
        J = int(group.max()) + 1
        self.data = data
        self.models: list[Any] = []
        self.prior = CapsulePrior(J, dimensions, components)
        self.prior.use.copy_(torch.from_numpy(np.bincount(group, minlength=J) / len(group)))
        images_for_prior = PRIOR_IMAGES if J > 1 else MIXTURE_IMAGES
        for j in range(J):
            own = codes[group == j]
            # Neither PCA nor factor analysis can be fitted to a single code.
            if len(own) == 1:
                own = np.repeat(own, 2, 0)
            latents = max(1, min(dimensions, len(own) - 1, codes.shape[1]))
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                model = make(latents).fit(own)
            self.models.append(model)
            some = evenly_spaced(len(own), images_for_prior)
            self.prior.fit(j, self.latents(own[some], j), config.seed)
        if config.prior_scale is None:
            self.prior.scale.fill_(best_prior_scale(self.draw_codes, codes))
        else:
            self.prior.scale.fill_(config.prior_scale)
        self.logit_scale = config.logit_scale or self.find_logit_scale(codes, group)

    def latents(self, codes: Float[np.ndarray, "n V"], j: int) -> Float[np.ndarray, "n N"]:
        latent = self.models[j].transform(codes)
        # A small group has a model of fewer latents; the rest are 0.
        missing = self.prior.mean.shape[-1] - latent.shape[1]
        return np.pad(latent, ((0, 0), (0, missing)))

    def codes(self, group: Int[np.ndarray, " n"], latent: Float[np.ndarray, "n N"]) -> Float[np.ndarray, "n V"]:
        codes = np.empty((len(group), len(self.models[0].mean_)))
        for j, model in enumerate(self.models):
            rows = group == j
            own_latent = latent[rows][:, : len(model.components_)]
            codes[rows] = model.mean_ + own_latent @ model.components_
        return codes

    def draw_codes(self, scale: float) -> Float[np.ndarray, "k V"]:
        """Codes from the prior, as probabilities."""
        noise = Noise(self.data.seed, 0, torch.arange(SCALE_SAMPLES))
        group = self.prior.choose(noise)
        latent = self.prior.sample(group, noise, scale)
        return self.codes(group.numpy(), latent.double().numpy()).clip(0, 1)

    def images(
        self,
        group: Int[np.ndarray, " n"],
        latent: Float[np.ndarray, "n N"],
        logit_scale: float,
    ) -> np.ndarray:
        odds = torch.logit(torch.from_numpy(self.codes(group, latent)), eps=1e-6)
        return self.data.decode(torch.sigmoid(logit_scale * odds).numpy())

    def find_logit_scale(
        self,
        codes: Float[np.ndarray, "n V"],
        group: Int[np.ndarray, " n"],
    ) -> float:
        """The largest scale that preserves brightness and shades, by the rule of the capsules."""
        some = evenly_spaced(len(codes), BRIGHTNESS_IMAGES)
        latent = np.concatenate([self.latents(codes[[i]], group[i]) for i in some])
        return largest_logit_scale(
            lambda scale: Look.of(torch.from_numpy(self.images(group[some], latent, scale))),
            Look.of(torch.from_numpy(self.data.decode(codes[some]))),
        )

    def sample(self, scale: float | None, logit_scale: float = 1.0) -> np.ndarray:
        group, latent = draw(self.prior, self.data, scale)
        return self.images(group.numpy(), latent.double().numpy(), logit_scale)

    def features(self, split: Split) -> np.ndarray:
        return np.concatenate([model.transform(flat(split)) for model in self.models], 1)


def draw(prior: CapsulePrior, data: EvaluationData, scale: float | None) -> tuple[Tensor, Tensor]:
    """Groups (n,) in exact proportion to their use, and latents (n, N) from their mixtures.

    Without a scale, each group's latents are drawn from one Gaussian.
    """
    noise = Noise(data.seed, 0, torch.arange(data.samples))
    group = prior.choose(noise)
    if scale is None:
        return group, prior.from_white(group, noise.normal(102, prior.mean.shape[-1]))
    return group, prior.sample(group, noise, scale)


def rows(
    name: str,
    make: Callable[[], LinearGroups],
    winner: Winner,
    plain: float | None,
) -> Models:
    """A linear model with the capsules' tricks, and plain: with `plain` as its prior's scale."""
    # Fitted once, by the first row that needs it.
    model = cache(make)

    def full() -> Output:
        images = model().sample(float(model().prior.scale), model().logit_scale)
        return Output(images, winner(), model().features)

    return {name: full, f"{name}, plain": lambda: Output(model().sample(plain))}


def grouped(data: EvaluationData, name: str, groups: Callable[[], Groups], make: Make) -> Models:
    """A linear model in each group, of as many dimensions as a pose."""
    N = data.network.top.upper[1]
    K = data.network.config.prior_components

    def model() -> LinearGroups:
        return LinearGroups(data, groups()[0], make, N, K)

    return rows(name, model, lambda: groups()[1], None)


def linear_models(data: EvaluationData) -> list[Models]:
    """The models beside the capsules in the table."""
    by_spectral = cache(partial(spectral, data))
    by_kmeans = cache(partial(kmeans, data))
    pca = partial(PCA, random_state=0)
    factors = partial(FactorAnalysis, random_state=0, max_iter=FACTOR_ITERATIONS)
    # In principal components of the codes, as many Gaussians as all capsules' priors have together, or as many as
    # there are images for.
    codes = data.train.codes
    size = min(MIXTURE_DIMENSIONS, codes[0].size)
    affordable = min(len(codes), MIXTURE_IMAGES) // (IMAGES_PER_PARAMETER * size)
    K = max(1, min(affordable, data.network.top.upper[0] * data.network.config.prior_components))
    one_group = np.zeros(len(codes), int)
    mixture = partial(LinearGroups, data, one_group, pca, size, K)
    return [
        grouped(data, "spectral groups + PCA", by_spectral, pca),
        grouped(data, "spectral groups + factor analysis", by_spectral, factors),
        grouped(data, "k-means + PCA", by_kmeans, pca),
        rows("mixture of Gaussians", mixture, lambda: None, 1.0),
    ]
