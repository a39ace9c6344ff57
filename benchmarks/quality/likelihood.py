"""Measure the likelihood of binarised MNIST images, in nats, beside other models.

    python -m benchmarks.quality.likelihood 20x16 bernoullis-20 bernoulli-rbm factor-analysers

Each argument is a model: JxN are capsules on pixels (`--codec pixels`), bernoullis-K is a mixture of K products of
Bernoullis, bernoulli-rbm is scikit-learn's, factor-analysers is one factor analysis for each of twenty clusters.
All see the same images, pixels above one half being 1. Rows are added to the record; one that is there is replaced.

Capsules have one routing iteration, so that the likelihood is exact up to log Z, start as the logistic PCA of their
group of images, and learn by persistent chains without the gate's loss. Afterwards the gate's bias is set so that
each capsule is as probable as its group. Factor analysers have densities, so uniform noise is added to the pixels:
the mean log density is then a lower bound of the log-likelihood.
"""

import argparse
import json
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

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
from capspoe.model.pixels import THRESHOLD

DEPENDS = records.TRAINING
SCORED = 10_000  # images of each split
HIDDEN = 500  # units of the RBM
CLUSTERS = 20
FACTORS = 16
EM_STEPS = 50


class Images(NamedTuple):
    """Training and test images, (n, 28, 28, 1) uint8."""

    train: np.ndarray
    test: np.ndarray

    def binary(self, split: str) -> Tensor:
        """Some images of a split as 0 and 1, (n, 784)."""
        pixels = getattr(self, split)[:SCORED]
        return torch.from_numpy((pixels / 255 > THRESHOLD).astype(np.float32)).flatten(1)

    def all_binary(self) -> np.ndarray:
        return (self.train / 255 > THRESHOLD).reshape(len(self.train), -1).astype(np.float32)


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


def capsules(layers: str, images: Images, epochs: int, seed: int) -> Bounds:
    config = Config(
        codec="pixels", layers=layers, iterations=1, start="low-rank", chains=32, gate_loss_weight=0.0,
        epochs=epochs, recognition_steps=0, seed=seed,
    )  # fmt: skip
    model = CapsulePoE.build(config, (28, 28, 1))
    fit(model, images.train)
    layer = model.top
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
    sample = x[:: max(1, len(x) // 10_000)].numpy()
    label = torch.from_numpy(KMeans(components, n_init=1, random_state=seed).fit(sample).predict(x.numpy())).long()
    responsibility = F.one_hot(label, components).float()
    for _ in range(EM_STEPS):
        count = responsibility.sum(0)
        log_share = (count / count.sum()).clamp_min(1e-9).log()
        # Half an image of each kind keeps the logits finite.
        logits = torch.logit((responsibility.T @ x + 0.5) / (count[:, None] + 1))
        constant = log_share - F.softplus(logits).sum(1)
        responsibility = torch.softmax(x @ logits.T + constant, 1)
    return bounds(images, lambda part: torch.logsumexp(part @ logits.T + constant, 1))


def bernoulli_rbm(images: Images, epochs: int, seed: int) -> Bounds:
    """scikit-learn's RBM, with log Z by annealed importance sampling."""
    rbm = BernoulliRBM(HIDDEN, learning_rate=0.05, batch_size=100, n_iter=epochs, random_state=seed)
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


def measured(name: str, images: Images, epochs: int, seed: int) -> Bounds:
    if re.fullmatch(r"[0-9]+x[0-9]+", name):
        return capsules(name, images, epochs, seed)
    if match := re.fullmatch(r"bernoullis-([0-9]+)", name):
        return bernoullis(int(match[1]), images, seed)
    others: dict[str, Callable[[], Bounds]] = {
        "bernoulli-rbm": partial(bernoulli_rbm, images, epochs, seed),
        "factor-analysers": partial(factor_analysers, images, seed),
    }
    if name not in others:
        raise SystemExit(f"{name} is no model: JxN, bernoullis-K, {', '.join(others)}")
    return others[name]()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--limit", type=int, default=60_000, help="training images")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    images = Images(data.load("mnist", "train").pixels[: options.limit], data.load("mnist", "test").pixels)
    rows: list[dict[str, Any]] = records.read("likelihood", [])
    for name in options.models:
        began = time.monotonic()
        result = measured(name, images, options.epochs, options.seed)
        row = {
            "model": name,
            "seed": options.seed,
            "images": len(images.train),
            "epochs": options.epochs,
            "train": [round(value, 2) for value in result.train],
            "test": [round(value, 2) for value in result.test],
            "seconds": round(time.monotonic() - began),
        }
        rows = [old for old in rows if (old["model"], old["seed"]) != (name, options.seed)] + [row]
        print(json.dumps(row), flush=True)
        records.write("likelihood", rows, DEPENDS)


if __name__ == "__main__":
    main()
