"""What people would use instead, trained on the same data and scored in the same table."""

import math
import tempfile
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import expit
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.neural_network import BernoulliRBM

from capspoe import contrastive
from capspoe.capsules import CapsuleLayer
from capspoe.checkpoint import State
from capspoe.codes import code_batch
from capspoe.config import Config, preset
from capspoe.evaluate.features import Told
from capspoe.evaluate.material import Made, Material, flat, hidden_of
from capspoe.evaluate.vae import sample_vae, train_vae, vae_means
from capspoe.journal import Journal
from capspoe.model import CapsulePoE
from capspoe.noise import Noise
from capspoe.stages import fit_prior, planned_steps, steps_in_order, train_capsules
from capspoe.training import train

CLUSTERED = 20_000  # codes that k-means and the mixture are fitted to
MIXTURE_DIRECTIONS = 64  # principal directions of the codes that the mixture lives in
RBM_RATE = 0.02
RBM_STEPS = 1000  # Gibbs steps from a start without data to a sample
PIXEL_EPOCHS = 10


def variant(model: CapsulePoE, codes: np.ndarray, told: Told | None = None, **changes: Any) -> CapsulePoE:
    """A network with the model's autoencoder and other capsules: only stage 2 is trained, on the same codes."""
    other = CapsulePoE(model.config.replace(**changes), model.image)
    other.autoencoder.load_state_dict(model.autoencoder.state_dict())
    steps = planned_steps(other.config.training.epochs, len(codes), other.config.training)
    with tempfile.TemporaryDirectory() as name:
        journal = Journal(Path(name), State("capsules-0", 0), math.inf, quiet=True)
        if told:
            listener = told
            journal.listeners.append(lambda line: listener(line["step"], steps))
        try:
            for depth in range(len(other.layers)):
                train_capsules(other, depth, codes, Path(name), journal, State(f"capsules-{depth}", 0), {})
        finally:
            journal.close()
    fit_prior(other, codes)
    return other.eval()


def literal_config(like: Config) -> Config:
    """The paper to the letter at the size of a run, on its data, for as many epochs."""
    c = preset("small", like.data.data, literal=True)
    same = {
        **{name: getattr(like.data, name) for name in ("size", "crop", "colour", "limit", "skip_bad")},
        **{name: getattr(like.autoencoder, name) for name in ("channels", "autoencoder_epochs")},
        **{
            name: getattr(like.training, name)
            for name in ("epochs", "least_steps", "batch", "seed", "threads")
        },
        "layers": like.capsules.layers,
    }
    return c.replace(**same)


def train_literal(model: CapsulePoE, folder: Path) -> CapsulePoE:
    """Both stages, since the paper's codes have no noise; an unfinished one is carried on."""
    return train(out=folder, config=literal_config(model.config), quiet=True)


def of_capsules(
    model: CapsulePoE,
    material: Material,
    prior: Literal["fitted", "standard"] | None = None,
    gibbs: int = 0,
    own_codes: np.ndarray | None = None,
) -> Made:
    """A capsule network's samples; its winners and features on the material's codes, or on its own."""
    images = model.sample(material.samples, prior=prior, gibbs=gibbs, seed=material.seed).images
    winner, _ = hidden_of(model, material.test_codes if own_codes is None else own_codes)
    return Made(images, model.top.upper[0], winner, lambda _, codes: hidden_of(model, codes)[1])


def kmeans_pca(material: Material) -> Made:
    """k-means with as many clusters as capsules; in each a Gaussian along as many directions as neurons."""
    J, N = material.model.top.upper
    codes = material.flat_codes(CLUSTERED)
    clusters = KMeans(J, n_init=3, random_state=0).fit(codes)
    rng = np.random.default_rng(material.seed % 2**64)
    share = np.bincount(clusters.labels_, minlength=J) / len(codes)
    chosen = rng.choice(J, material.samples, p=share)
    drawn = np.empty((material.samples, codes.shape[1]), np.float32)
    directions = []
    for j in range(J):
        own, rows = codes[clusters.labels_ == j], chosen == j
        if (own == own[:1]).all():  # one code, equal ones or none have no directions
            drawn[rows] = own[:1]
            continue
        size = min(N, len(own) - 1, codes.shape[1])
        pca = PCA(size, random_state=0).fit(own)
        spread = rng.standard_normal((int(rows.sum()), size)) * np.sqrt(pca.explained_variance_)
        drawn[rows] = pca.mean_ + spread @ pca.components_
        directions.append(pca)

    def features(_: np.ndarray, codes: np.ndarray) -> np.ndarray:
        return np.concatenate([pca.transform(flat(codes)) for pca in directions], 1)

    winner = clusters.predict(flat(material.test_codes))
    return Made(material.paint(drawn), J, winner, features if directions else None)


def mixture(material: Material) -> Made:
    """A mixture of as many Gaussians as capsules, in the main directions of the codes."""
    J = material.model.top.upper[0]
    codes = material.flat_codes(CLUSTERED)
    size = min(MIXTURE_DIRECTIONS, *codes.shape)
    pca = PCA(size, random_state=0).fit(codes.astype(np.float64))  # covariances need the digits
    model = GaussianMixture(J, reg_covar=1e-4, random_state=0, max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(pca.transform(codes.astype(np.float64)))
    model.random_state = material.seed % 2**32
    drawn, _ = model.sample(material.samples)
    drawn = np.random.default_rng(material.seed % 2**64).permutation(drawn)
    return Made(
        material.paint(pca.inverse_transform(drawn)),
        J,
        model.predict(pca.transform(flat(material.test_codes).astype(np.float64))),
        lambda _, codes: pca.transform(flat(codes)),
    )


def train_rbm(material: Material) -> CapsuleLayer:
    """An RBM with as many hidden neurons as the capsules have, on the same codes, by contrastive divergence."""
    model, t = material.model, material.model.config.training
    codes = material.train_codes.reshape(len(material.train_codes), -1, 1)
    J, N = model.top.upper
    layer = CapsuleLayer.rbm(codes.shape[1], J * N, seed=t.seed)
    layer.start_from(torch.from_numpy(codes.mean(0, dtype=np.float32)))
    groups: list[dict[str, Any]] = [
        {"params": [layer.w_JNMI], "weight_decay": t.l2},
        {"params": [layer.a, layer.b]},
    ]
    optimizer = torch.optim.SGD(groups, RBM_RATE, t.momentum)
    steps = planned_steps(t.epochs, len(codes), t)
    for step, index in steps_in_order(len(codes), t.batch, t.seed, 2, 0, steps):
        x = code_batch(codes, index, torch.device("cpu"))
        gradient, _ = contrastive.step(layer, x, Noise(t.seed, step, torch.from_numpy(index)), k=t.cd)
        for parameter, ascent in zip((layer.w_JNMI, layer.a, layer.b), gradient, strict=False):
            parameter.grad = -ascent
        for group in optimizer.param_groups:
            group["lr"] = RBM_RATE * (1 - step / steps)
        optimizer.step()
        if material.told:
            material.told(step + 1, steps)
    return layer


@torch.no_grad()
def sample_rbm(layer: CapsuleLayer, count: int, steps: int, seed: int) -> np.ndarray:
    """Visible means (count, V) after Gibbs steps from hidden units thrown like coins: no data at the start."""
    rng = torch.Generator().manual_seed(seed)
    w_HV, a, b = layer.w_JNMI[:, 0, 0], layer.a[:, 0], layer.b[:, 0] - layer.w_JNMI[:, 0, 0] @ layer.mu[:, 0]
    h = (torch.rand(count, len(b), generator=rng) < 0.5).float()
    for _ in range(steps):
        x = (torch.rand(count, len(a), generator=rng) < torch.sigmoid(h @ w_HV + a)).float()
        h = (torch.rand(count, len(b), generator=rng) < torch.sigmoid(x @ w_HV.T + b)).float()
    return torch.sigmoid(h @ w_HV + a).numpy()


def rbm(material: Material) -> Made:
    layer = train_rbm(material)

    @torch.no_grad()
    def features(_: np.ndarray, codes: np.ndarray) -> np.ndarray:
        parts = [
            layer.hidden_given_visible(layer(torch.from_numpy(part)[..., None]).z)[..., 0].numpy()
            for part in np.array_split(flat(codes), max(1, len(codes) // 1000))
        ]
        return np.concatenate(parts)

    drawn = sample_rbm(layer, material.samples, RBM_STEPS, material.seed)
    return Made(material.paint(drawn), features=features)


def vae(material: Material) -> Made:
    """The run's convolutions around N + log2 J numbers: a capsule's own, and what the choice of one can tell."""
    model = material.model
    J, N = model.top.upper
    epochs = 2 * model.config.autoencoder.autoencoder_epochs  # about the time that the whole run took
    trained = train_vae(model, material.train_pixels, N + round(math.log2(J)), epochs, material.told)
    means = vae_means(trained, material.train_pixels)
    clusters = KMeans(J, n_init=3, random_state=0).fit(means)
    return Made(
        sample_vae(trained, material.samples, material.seed),
        J,
        clusters.predict(vae_means(trained, material.test_pixels)),
        lambda pixels, _: vae_means(trained, pixels),
    )


def pixel_rbm(material: Material) -> Made:
    """scikit-learn's BernoulliRBM on pixels, with as many hidden neurons."""
    J, N = material.model.top.upper
    t = material.model.config.training

    def flat_pixels(pixels: np.ndarray) -> np.ndarray:
        return (pixels.reshape(len(pixels), -1) / 255).astype(np.float32)

    machine = BernoulliRBM(
        J * N, learning_rate=0.02, batch_size=t.batch, n_iter=1, random_state=t.seed % 2**32
    )
    x = material.train_pixels
    order = np.random.default_rng(t.seed % 2**64)
    steps = PIXEL_EPOCHS * -(-len(x) // t.batch)
    done = 0
    for _ in range(PIXEL_EPOCHS):
        for index in np.array_split(order.permutation(len(x)), -(-len(x) // t.batch)):
            machine.partial_fit(flat_pixels(x[index]))
            done += 1
            if material.told:
                material.told(done, steps)
    rng = np.random.default_rng(material.seed % 2**64)
    v = rng.random((material.samples, math.prod(material.model.image))) < 0.5
    machine.random_state_ = np.random.RandomState(material.seed % 2**32)
    for _ in range(RBM_STEPS):
        v = machine.gibbs(v)
    h = rng.random((len(v), J * N)) < machine.transform(v.astype(np.float32))
    images = expit(h @ machine.components_ + machine.intercept_visible_).astype(np.float32)
    return Made(
        images.reshape(-1, *material.model.image),
        features=lambda pixels, _: machine.transform(flat_pixels(pixels)),
    )
