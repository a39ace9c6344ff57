"""Measure the likelihood of binarised MNIST images, in nats, beside other models.

    python -m benchmarks.quality.likelihood 20x16 bernoullis-100 bernoulli-rbm factor-analysers
    python -m benchmarks.quality.likelihood 100x24 --held-out 10000 --temperature 1

Each argument is a model: JxN are capsules on pixels (`--codec pixels`), JxN-chains are capsules that also learn by
persistent chains, bernoullis-K is a mixture of K products of Bernoullis, bernoulli-rbm is scikit-learn's,
factor-analysers is one factor analysis for each of twenty clusters. All see the same images. Each pixel was drawn
once, 1 with its brightness as the probability, as in the literature; `--threshold` makes pixels above one half 1
instead, which has less entropy. Rows are added to the record; one that is there is replaced.

Capsules have one routing iteration, so that the likelihood is exact up to log Z. They start from the clusters of
k-means, as the mixtures of Bernoullis do. Each becomes the logistic PCA of its images, then takes the images that it
explains (`MixtureStart`). With chains it goes on from there by the gradient of the likelihood, as `--start mixture`
does. Afterwards the gate's bias is set so that each capsule is as probable as it is used. Factor analysers have
densities, so uniform noise is added to the pixels: the mean log density is then a lower bound of the log-likelihood.

`20x16 20x16-chains` starts once for both, and the time of the second is that of its steps.

With `--held-out K` the last K training images stand in for the test images, and the row goes to a record of its own:
so the ridge, the temperature and the number of neurons were chosen, and the epochs and learning rates of the RBM and
of the chains.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.decomposition import FactorAnalysis
from sklearn.neural_network import BernoulliRBM
from torch import Tensor
from torch.nn import functional as F

from benchmarks import records
from capspoe import CapsulePoE, Config, data, fit
from capspoe.infer.likelihood import LogZ, log_integrals, log_weight
from capspoe.infer.rbm import log_partition_rbm
from capspoe.model.layer import CapsuleLayer
from capspoe.training.build import chain_count
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.codes import codes_in_memory
from capspoe.training.pcd import PersistentChains
from capspoe.training.prior_stage import fit_prior
from capspoe.training.stage import Schedule, Training
from capspoe.training.starts import LayerInputs, LowRankStart, MixtureStart, Start
from capspoe.training.targets import GateTargets

DEPENDS = (*records.TRAINING, "infer")
SCORED = 10_000  # images of each split
GROUP_IMAGES = 1_500  # that a capsule is fitted to at most
REGRESSION_STEPS = 60  # with 30, as for codes, the likelihood is several nats lower
BINARISATION_SEED = 0
HIDDEN = 500  # units of the RBM
CLUSTERS = 20
FACTORS = 16
EM_STEPS = 50


class Images(NamedTuple):
    """Binary training and test images, (n, 28, 28, 1) uint8 with the values 0 and 255."""

    train: np.ndarray
    test: np.ndarray

    @classmethod
    def load(cls, limit: int, held_out: int, threshold: bool) -> "Images":
        """MNIST; with `held_out` the last training images take the place of the test images."""
        rng = np.random.default_rng(BINARISATION_SEED)

        def binary(pixels: np.ndarray) -> np.ndarray:
            limits = 0.5 if threshold else rng.random(pixels.shape, dtype=np.float32)
            return np.where(pixels / 255 > limits, 255, 0).astype(np.uint8)

        train = binary(data.load("mnist", "train").pixels)
        test = binary(data.load("mnist", "test").pixels)
        if held_out:
            train, test = train[:-held_out], train[-held_out:]
        return cls(train[:limit], test)

    def binary(self, split: str) -> Tensor:
        """Some images of a split as 0 and 1, (n, 784)."""
        return torch.from_numpy(getattr(self, split)[:SCORED] / np.float32(255)).flatten(1)

    def all_binary(self) -> np.ndarray:
        return (self.train / np.float32(255)).reshape(len(self.train), -1)


class Mixture(NamedTuple):
    """How capsules start.

    ridge          of the logistic PCA
    temperature    at which images are shared among capsules
    rounds         of expectation maximisation
    """

    ridge: float = 0.02
    temperature: float = 20.0
    rounds: int = 1


class Descent(NamedTuple):
    """Epochs and learning rate of a model that learns by gradients."""

    epochs: int
    learning_rate: float


RBM = Descent(10, 0.01)
PERSISTENT = Descent(3, 1e-3)


class Bounds(NamedTuple):
    """Mean log-likelihood of the images of both splits, from below and from above."""

    train: tuple[float, float]
    test: tuple[float, float]


Score = Callable[[Tensor], Tensor]  # log P (n,) of images (n, 784)


def bounds(images: Images, lower: Score, upper: Score | None = None) -> Bounds:
    def both(split: str) -> tuple[float, float]:
        x = images.binary(split)
        low = float(torch.cat([lower(part).double() for part in x.split(500)]).mean())
        if upper is None:
            return low, low
        return low, float(torch.cat([upper(part).double() for part in x.split(500)]).mean())

    return Bounds(both("train"), both("test"))


class KMeansTargets:
    """Clusters of k-means as the first groups of the capsules."""

    def __init__(self, clusters: int, seed: int) -> None:
        self.clusters = clusters
        self.seed = seed

    def find(self, training: Training) -> Tensor:
        x = training.codes.reshape(len(training.codes), -1).astype(np.float32)
        return k_means(x, self.clusters, self.seed).int()


@dataclass
class KeptStart:
    """Starts once, and later from what it had then: seconds instead of minutes."""

    start: Start
    kept: tuple[dict[str, Tensor], GateTargets | None] | None = None

    def begin(self, inputs: LayerInputs) -> LayerInputs:
        if self.kept is None:
            inputs = self.start.begin(inputs)
            weights = {name: value.clone() for name, value in inputs.layer.state_dict().items()}
            self.kept = (weights, inputs.targets)
            return inputs
        weights, targets = self.kept
        inputs.layer.load_state_dict(weights)
        return replace(inputs, targets=targets)


@cache
def mixture_start(layers: str, mixture: Mixture, seed: int) -> KeptStart:
    """Where these capsules start, in this process; all models of a process have the same images."""
    low_rank = LowRankStart(GROUP_IMAGES, mixture.ridge, REGRESSION_STEPS, seed, avoid_far_modes=True)
    return KeptStart(MixtureStart(low_rank, mixture.rounds, mixture.temperature))


def k_means(x: np.ndarray, clusters: int, seed: int) -> Tensor:
    """The cluster of each image (n, 784), fitted to about ten thousand of them."""
    sample = x[:: max(1, len(x) // 10_000)]
    return torch.from_numpy(KMeans(clusters, n_init=1, random_state=seed).fit(sample).predict(x)).long()


def capsules(layers: str, images: Images, mixture: Mixture, chains: Descent | None, seed: int) -> Bounds:
    model = CapsulePoE.build(Config(codec="pixels", layers=layers, iterations=1, seed=seed), (28, 28, 1))
    layer = model.top
    start = mixture_start(layers, mixture, seed)
    targets = KMeansTargets(layer.upper[0], seed)
    if chains:
        update = PersistentChains(layer, chain_count(Config(), layer, top=True), seed=seed)
        schedule = Schedule(chains.epochs, seed=seed)
        stage = CapsuleStage(0, schedule, update, targets, chains.learning_rate, start=start, follow_targets=False)
    else:
        # No steps: the start is all.
        stage = CapsuleStage(0, Schedule(0), targets=targets, start=start)
    fit(model, images.train, [stage])
    # One Gaussian for each capsule, where the annealing begins.
    fit_prior(model, codes_in_memory(model, images.train), seed, components=1)
    low, high = log_integrals(layer, model.prior, seed)
    set_shares(layer, model.prior.use, (low + high) / 2)
    log_z = LogZ.of(layer, low, high)

    def weight(x: Tensor) -> Tensor:
        return log_weight(layer, model.codec.encode(x.view(-1, 1, 28, 28)))

    return bounds(images, lambda x: weight(x) - log_z.upper, lambda x: weight(x) - log_z.lower)


@torch.no_grad()
def set_shares(layer: CapsuleLayer, share: Tensor, log_integral: Tensor) -> None:
    """Set the gate's bias so that P(j on) is each capsule's share."""
    layer.d.copy_(share.clamp_min(1e-6).log() - log_integral + (layer.a * layer.mu).sum((1, 2)))


def bernoullis(components: int, images: Images, seed: int) -> Bounds:
    """A mixture of products of Bernoullis, by expectation maximisation from k-means."""
    x = torch.from_numpy(images.all_binary())
    responsibility = F.one_hot(k_means(x.numpy(), components, seed), components).float()
    for _ in range(EM_STEPS):
        count = responsibility.sum(0)
        log_share = (count / count.sum()).clamp_min(1e-9).log()
        # Half an image of each kind keeps the logits finite.
        logits = torch.logit((responsibility.T @ x + 0.5) / (count[:, None] + 1))
        constant = log_share - F.softplus(logits).sum(1)
        responsibility = torch.softmax(x @ logits.T + constant, 1)
    return bounds(images, lambda part: torch.logsumexp(part @ logits.T + constant, 1))


def bernoulli_rbm(images: Images, descent: Descent, seed: int) -> Bounds:
    """scikit-learn's RBM, with log Z by annealed importance sampling."""
    rbm = BernoulliRBM(
        HIDDEN, learning_rate=descent.learning_rate, batch_size=100, n_iter=descent.epochs, random_state=seed
    )
    rbm.fit(images.all_binary())
    layer = CapsuleLayer.rbm(784, HIDDEN)
    with torch.no_grad():
        layer.w_JNMI.copy_(torch.from_numpy(rbm.components_)[:, None, None])
        layer.a.copy_(torch.from_numpy(rbm.intercept_visible_)[:, None])
        layer.b.copy_(torch.from_numpy(rbm.intercept_hidden_)[:, None])
    log_z = log_partition_rbm(layer, chains=100, seed=seed)

    @torch.no_grad()
    def weight(x: Tensor) -> Tensor:
        return -layer.free_energy(x[..., None], None)

    return bounds(images, lambda x: weight(x) - log_z.upper, lambda x: weight(x) - log_z.lower)


def factor_analysers(images: Images, seed: int) -> Bounds:
    """A factor analysis in each cluster of k-means, of dequantised pixels."""
    rng = np.random.default_rng(seed)
    x = images.all_binary()
    label = KMeans(CLUSTERS, n_init=1, random_state=seed).fit(x[:10_000]).predict(x)
    models = []
    for cluster in range(CLUSTERS):
        own = x[label == cluster]
        noisy = own + rng.random(own.shape)
        models.append((np.log(len(own) / len(x)), FactorAnalysis(FACTORS, max_iter=20, random_state=seed).fit(noisy)))

    def score(part: Tensor) -> Tensor:
        noisy = part.numpy() + rng.random(part.shape)
        return torch.logsumexp(torch.from_numpy(np.stack([s + m.score_samples(noisy) for s, m in models], 1)), 1)

    return bounds(images, score)


class Model(NamedTuple):
    """A model by its name, with the settings that it is measured with."""

    settings: dict[str, Any]
    measure: Callable[[Images, int], Bounds]  # of the images and a seed

    @classmethod
    def all(cls, names: Sequence[str], options: argparse.Namespace) -> "Iterator[tuple[str, Model]]":
        """Each model, those that learn by gradients with all numbers of epochs that are asked for."""
        for name in names:
            learns = cls.of(name, options, None).settings.keys() & Descent._fields
            for epochs in options.epochs if learns else [None]:
                yield name, cls.of(name, options, epochs)

    @classmethod
    def of(cls, name: str, options: argparse.Namespace, epochs: int | None) -> "Model":
        if match := re.fullmatch(r"([0-9]+x[0-9]+)(-chains)?", name):
            mixture = chosen(Mixture(), vars(options))
            if not match[2]:
                return cls(mixture._asdict(), lambda images, seed: capsules(match[1], images, mixture, None, seed))
            chains = chosen(PERSISTENT, vars(options) | {"epochs": epochs})
            settings = mixture._asdict() | chains._asdict()
            return cls(settings, lambda images, seed: capsules(match[1], images, mixture, chains, seed))
        if match := re.fullmatch(r"bernoullis-([0-9]+)", name):
            return cls({}, lambda images, seed: bernoullis(int(match[1]), images, seed))
        if name == "bernoulli-rbm":
            descent = chosen(RBM, vars(options) | {"epochs": epochs})
            return cls(descent._asdict(), lambda images, seed: bernoulli_rbm(images, descent, seed))
        if name == "factor-analysers":
            return cls({}, factor_analysers)
        raise SystemExit(f"{name} is no model: JxN, JxN-chains, bernoullis-K, bernoulli-rbm, factor-analysers")


Settings = TypeVar("Settings", Mixture, Descent)


def chosen(defaults: Settings, options: dict[str, Any]) -> Settings:
    """The defaults, with what the options change."""
    return defaults._replace(**{name: options[name] for name in defaults._fields if options[name] is not None})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    for name, kind in Mixture.__annotations__.items():
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--epochs", type=int, nargs="+", default=[None], help="of the RBM, and of chains")
    parser.add_argument("--learning-rate", type=float, help="of these")
    parser.add_argument("--limit", type=int, default=60_000, help="training images")
    parser.add_argument("--held-out", type=int, default=0, metavar="K", help="training images to choose by")
    parser.add_argument("--threshold", action="store_true", help="binarise at one half instead of drawing pixels")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    images = Images.load(options.limit, options.held_out, options.threshold)
    record = "likelihood-held-out" if options.held_out else "likelihood"
    for name, model in Model.all(options.models, options):
        began = time.monotonic()
        result = model.measure(images, options.seed)
        row = {
            "model": name,
            "seed": options.seed,
            "binarisation": "threshold" if options.threshold else "drawn",
            "images": len(images.train),
            **model.settings,
            "train": [round(value, 2) for value in result.train],
            "test": [round(value, 2) for value in result.test],
            "seconds": round(time.monotonic() - began),
        }
        print(json.dumps(row), flush=True)
        rows = [old for old in records.read(record, []) if not same_run(old, row)]
        records.write(record, [*rows, row], DEPENDS, extends=True)


def same_run(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two rows have the same model, images and settings."""
    results = ("train", "test", "seconds")
    return {k: v for k, v in first.items() if k not in results} == {
        k: v for k, v in second.items() if k not in results
    }


if __name__ == "__main__":
    main()
