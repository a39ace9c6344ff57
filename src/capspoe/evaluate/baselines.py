"""The models of the table: the run, variants of it, the literal paper, and other models of the same data."""

import copy
import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR

from capspoe.config import Config, preset
from capspoe.data import evenly_spaced
from capspoe.evaluate.data import EvaluationData, Output, Split, encode_codes, in_memory
from capspoe.evaluate.features import CHUNK, as_tensor, minimize
from capspoe.evaluate.groups import Models, draw, flat
from capspoe.infer.chains import PoseDensity
from capspoe.infer.sample import sample
from capspoe.model.autoencoder import ConvAutoencoder
from capspoe.model.codec import Codec
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.neurons import NEURONS
from capspoe.model.prior import CapsulePrior, Sampling
from capspoe.run.model import CapsulePoE
from capspoe.run.train import train_run
from capspoe.training.build import build_stages
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.codes import codes_in_memory
from capspoe.training.fit import fit
from capspoe.training.prior_stage import BRIGHTNESS_IMAGES, Look, fit_prior, largest_logit_scale
from capspoe.training.stage import Schedule

ABLATIONS: dict[str, dict[str, Any]] = {
    "no gate targets: the gate anneals": {"gate_targets": "none"},
    "gate loss weight 0": {"gate_loss_weight": 0.0},
    "one routing iteration": {"iterations": 1},
    "one Gaussian per capsule": {"prior_components": 1},
    "prior scale 1": {"prior_scale": 1.0},
    "logit scale 1": {"logit_scale": 1.0},
}
PLAIN: dict[str, Any] = {"prior_components": 1, "prior_scale": 1.0, "logit_scale": 1.0}
SAMPLING = set(PLAIN)  # settings that need no new training
SAME_AS_RUN = (
    "size", "crop", "colour", "limit", "skip_bad", "channels", "layers", "autoencoder_epochs", "batch_size",
    "seed", "threads",
)  # fmt: skip
RBM_RATE = 0.02  # learning rate
RBM_GIBBS = 1000  # steps from random hidden units to a sample


def output(
    network: Network,
    data: EvaluationData,
    prior: str | None = None,
    probed: bool = True,
    sets: int | None = None,
) -> Output:
    """Samples of a capsule network in all sets or some, and its winners and poses on the codes of the run."""
    count = data.samples if sets is None else sets * data.samples // data.sets
    images = sample(network, count, prior=prior, seed=data.seed).images
    winner = network.encode(data.test.pixels).on.argmax(1)
    if not probed:
        return Output(images, winner)
    return Output(images, winner, partial(poses, network))


def poses(network: Network, split: Split) -> np.ndarray:
    return encode_codes(network, split.codes).hidden.reshape(len(split.codes), -1)


def own(data: EvaluationData) -> Models:
    """Samples of several kinds, beside training images and their reconstructions.

    No model beats the training images by much, so they and their reconstructions are the floor.
    """
    training, _ = in_memory(data.all_train, data.samples)
    make = partial(output, data.network, data)
    reconstruct = data.network.reconstruct

    def sampled(**settings: Any) -> Output:
        return output(variant(data.network, data.train.codes, data.train.pixels, **settings), data, probed=False)

    models: Models = {
        "floor: training images": lambda: Output(training),
        "floor: autoencoder reconstructions": lambda: Output(
            reconstruct(training, "autoencoder"),
        ),
        "floor: capsule reconstructions": lambda: Output(reconstruct(training)),
        "capspoe": make,
        "capspoe, both scales 1": partial(sampled, prior_scale=1.0, logit_scale=1.0),
        "capspoe, plain": partial(sampled, **PLAIN),
        "capspoe, the paper's sampling": partial(make, "standard", probed=False),
    }
    if PoseDensity.exists(data.network.top):
        # One set: 10,000 chains take longer than all other rows together.
        models["capspoe, the energy's own samples"] = partial(make, "model", probed=False, sets=1)
    return models


def variant(network: CapsulePoE, codes: np.ndarray, images: np.ndarray | None = None, **changes: Any) -> CapsulePoE:
    """The network with other settings; its capsules are retrained on codes (n, I, M) if necessary.

    With the images that the codes are of, its gate has the same targets, and it has a recognition network.
    """
    config = network.config.replace(**changes)
    # Sampling settings leave the weights as they are: a copy is enough.
    if changes and SAMPLING.issuperset(changes):
        other = copy.deepcopy(network)
        other.config = config
        other.sampling = Sampling(config.prior, config.prior_scale, config.logit_scale)
        if "prior_components" in changes:
            fit_prior(other, codes, config.seed, config.prior_components)
        return other
    # All else changes the capsules; the codec is the run's own, so that the codes still fit.
    other = CapsulePoE.build(config, network.image)
    other.codec.load_state_dict(network.codec.state_dict())
    fit(other, images, build_stages(config, other), codes=codes)
    return other


def variant_rows(data: EvaluationData, name: str, changes: dict[str, Any]) -> Models:
    """A variant, sampled in two ways if it was trained."""
    # Trained once, by the first row that needs it.
    other = cache(lambda: variant(data.network, data.train.codes, data.train.pixels, **changes))
    if SAMPLING.issuperset(changes):
        return {name: lambda: output(other(), data, "fitted", probed=False)}
    return {
        name: lambda: output(other(), data, "fitted"),
        f"{name}, the paper's sampling": lambda: output(
            other(),
            data,
            "standard",
            probed=False,
        ),
    }


def variants(data: EvaluationData, quick: bool, ablate: bool) -> list[Models]:
    """Variants that differ from the run: ablations and, unless `quick`, other neurons and routing."""
    c = data.network.config
    # Binary neurons learn at a rate of their own: scale it as the run's was scaled.
    neurons = data.network.top.neurons
    rate = c.learning_rate * NEURONS["binary"].learning_rate / neurons.learning_rate
    slow: dict[str, dict[str, Any]] = {
        "binary neurons with the gate": {
            "neurons": "binary",
            "gate": "winner",
            "learning_rate": rate,
        },
        "three routing iterations": {"iterations": 3},
        "one routing iteration": {"iterations": 1},
    }
    chosen: dict[str, dict[str, Any]] = {}
    if not quick:
        chosen |= slow
    if ablate:
        chosen |= ABLATIONS
    models = []
    for name, changes in chosen.items():
        # A variant with the run's own settings would be the run again.
        if c != c.replace(**changes):
            models.append(variant_rows(data, name, changes))
    return models


def literal_config(like: Config) -> Config:
    """The paper to the letter, at the size of a run, on its data."""
    same = {name: getattr(like, name) for name in SAME_AS_RUN}
    config = preset("small", like.data, literal=True).replace(**same)
    # A short run has a short comparison.
    return config.replace(min_steps=min(config.min_steps, like.min_steps))


def literal(data: EvaluationData, folder: Path) -> Output:
    """The paper to the letter; both stages are trained into the folder, as its codes lack noise."""
    network = train_run(literal_config(data.network.config), folder, quiet=True).model
    own_data = EvaluationData(network, data.samples, data.seed, data.sets)

    def features(split: Split) -> np.ndarray:
        # The probe's split has the codes of the run, which this network's autoencoder does not know.
        own_codes = codes_in_memory(network, split.pixels)
        return poses(network, split._replace(codes=own_codes))

    return output(network, own_data)._replace(features=features)


class Units(Codec):
    """Each unit of a code as a lower capsule of its own."""

    has_images = False

    def __init__(self, units: int) -> None:
        super().__init__()
        self.image = (1, units, 1)
        self.capsules = (units, 1)


def rbm(data: EvaluationData) -> Output:
    """An RBM with as many hidden neurons as the capsules have, on the same codes."""
    config = data.network.config
    codes = data.train.codes.reshape(len(data.train.codes), -1, 1)
    layer = CapsuleLayer.rbm(codes.shape[1], math.prod(data.network.top.upper), seed=config.seed)
    schedule = Schedule(config.epochs, config.batch_size, config.min_steps, config.seed)
    stage = CapsuleStage(
        0,
        schedule,
        learning_rate=RBM_RATE,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
    )
    fit(Network(Units(codes.shape[1]), [layer]), None, [stage], codes=codes)

    @torch.no_grad()
    def features(split: Split) -> np.ndarray:
        parts = torch.from_numpy(flat(split))[..., None].split(CHUNK)
        return torch.cat([layer.hidden_mean(layer(part).z)[..., 0] for part in parts]).numpy()

    samples = sample_rbm(layer, data.samples, RBM_GIBBS, data.seed)
    return Output(data.decode(samples), features=features)


@torch.no_grad()
def sample_rbm(layer: CapsuleLayer, count: int, steps: int, seed: int) -> np.ndarray:
    """Visible means (count, V) after Gibbs steps from random hidden units."""
    rng = torch.Generator().manual_seed(seed)
    w_HV = layer.w_JNMI[:, 0, 0]
    a = layer.a[:, 0]
    b = layer.b[:, 0]
    h = (torch.rand(count, len(b), generator=rng) < 0.5).float()
    for _ in range(steps):
        x = (torch.rand(count, len(a), generator=rng) < torch.sigmoid(h @ w_HV + a)).float()
        h = (torch.rand(count, len(b), generator=rng) < torch.sigmoid(x @ w_HV.T + b)).float()
    return torch.sigmoid(h @ w_HV + a).numpy()


def vae(data: EvaluationData) -> Models:
    """A VAE (Kingma and Welling 2014) with N + log2(J) latents: a pose, and the choice of a capsule.

    The second row draws from a mixture fitted to its latents, with the capsules' tricks.
    """
    c = data.network.config
    J, N = data.network.top.upper
    pixels = data.train.pixels
    conv = ConvAutoencoder(
        data.network.image,
        c.channels,
        dropout=0.0,
        code_noise=0.0,
        seed=c.seed,
    )
    conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    size = math.prod(conv.code_shape)
    latents = N + round(math.log2(J))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(c.seed)
        posterior = nn.Linear(size, 2 * latents)
        expand = nn.Linear(latents, size)

    def encode(images: Float[Tensor, "B C H W"]) -> tuple[Tensor, ...]:
        """The mean and the log variance of the posterior, both (B, L)."""
        return posterior(F.leaky_relu(conv.code_logits(images)).flatten(1)).chunk(2, -1)

    def image_logits(z: Float[Tensor, "B L"], scale: float = 1.0) -> Float[Tensor, "B C H W"]:
        return conv.image_logits(torch.sigmoid(scale * expand(z)).view(-1, *conv.code_shape))

    def loss(index: np.ndarray) -> Float[Tensor, ""]:
        """The negative evidence lower bound, in nats per image."""
        images = as_tensor(pixels[index])
        mean, log_variance = encode(images)
        z = mean + torch.exp(log_variance / 2) * torch.randn_like(mean)
        logits = image_logits(z)
        reconstruction = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
        divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
        return (reconstruction + divergence) / len(images)

    @torch.no_grad()
    def means(split: Split) -> np.ndarray:
        parts = np.array_split(split.pixels, -(-len(split.pixels) // CHUNK))
        return torch.cat([encode(as_tensor(part))[0] for part in parts]).numpy()

    @cache
    def train() -> None:
        # Twice the epochs take about as long as the whole run.
        batch_size = c.autoencoder_batch_size
        schedule = Schedule(2 * c.autoencoder_epochs, batch_size, c.min_steps, c.seed)
        steps = schedule.steps(len(pixels))
        optimizer = torch.optim.Adam(nn.ModuleList([conv, posterior, expand]).parameters(), 1e-3)
        rates = CosineAnnealingLR(optimizer, steps)
        minimize(loss, rates, len(pixels), batch_size, steps, c.seed)

    @torch.no_grad()
    def decode(z: Float[Tensor, "B L"], scale: float = 1.0) -> np.ndarray:
        images = [torch.sigmoid(image_logits(part, scale)) for part in z.split(CHUNK)]
        return data.network.array(torch.cat(images))

    def with_mixture() -> Output:
        train()
        known = means(data.train)
        prior = CapsulePrior(1, latents, J * c.prior_components)
        prior.fit(0, known, c.seed)
        some = evenly_spaced(len(known), BRIGHTNESS_IMAGES)
        # The rule of the capsules: the largest scale that preserves brightness and shades.
        scale = c.logit_scale or largest_logit_scale(
            lambda scale: Look.of(torch.from_numpy(decode(torch.from_numpy(known[some]), scale))),
            Look.of(as_tensor(pixels[some]).permute(0, 2, 3, 1)),
        )
        winner = KMeans(J, n_init=3, random_state=0).fit(known).predict(means(data.test))
        prior_scale = float(data.network.prior.scale) if c.prior_scale is None else c.prior_scale
        _, latent = draw(prior, data, prior_scale)
        return Output(decode(latent, scale), winner, means)

    def plain() -> Output:
        train()
        rng = torch.Generator().manual_seed(data.seed)
        return Output(decode(torch.randn(data.samples, latents, generator=rng)))

    return {"convolutional VAE": plain, "convolutional VAE + mixture of its latents": with_mixture}


SLOW: list[Callable[[EvaluationData], Models]] = [
    lambda data: {"RBM on the codes": partial(rbm, data)},
    vae,
]
