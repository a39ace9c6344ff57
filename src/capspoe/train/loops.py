"""The two training loops, as generators of steps that know nothing of files.

Whoever iterates over them logs, saves and draws: `train` in a run folder, the estimator and the baselines in memory.
Every loop can start at any step and then does exactly what an uninterrupted one does.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe import distributed
from capspoe.config import Config
from capspoe.data import Dataset, evenly_spaced, workers_for
from capspoe.errors import DivergedError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.train import cd as contrastive
from capspoe.train.optimizers import capsule_learning_rate, set_gradients, set_learning_rate
from capspoe.train.targets import GateTargets


class Step(NamedTuple):
    """A finished step."""

    number: int  # steps finished so far
    images: int  # in its batch
    metrics: dict[str, Any]


def planned_steps(epochs: int, count: int, config: Config) -> int:
    """Steps of a stage: the epochs, or more where there are few images."""
    per_epoch = -(-count // config.batch_size)
    return per_epoch * max(epochs, -(-config.min_steps // per_epoch))


def batches(
    count: int, batch_size: int, seed: int, stream: int, first: int, last: int
) -> Iterator[tuple[int, np.ndarray]]:
    """(step, indices) for steps first to last - 1; every epoch has its own permutation."""
    per_epoch = -(-count // batch_size)
    step = first
    while step < last:
        order = np.random.default_rng([seed % 2**64, stream, step // per_epoch]).permutation(count)
        for start in range((step % per_epoch) * batch_size, count, batch_size):
            if step == last:
                return
            yield step, order[start : start + batch_size]
            step += 1


# Stage 1: the autoencoder.


def autoencoder_steps(
    network: Network, dataset: Dataset, optimizer: torch.optim.Optimizer, first: int, last: int
) -> Iterator[Step]:
    """Train the autoencoder to reproduce images from their noisy codes; from step `first` to step `last`."""
    c, parameters = network.config, list(network.codec.parameters())
    for step, shard, pixels in image_batches(dataset, c.batch_size, c.seed, first, last):
        noise = Noise(c.seed, step, torch.from_numpy(shard.images).to(network.device))
        set_learning_rate(optimizer, c.autoencoder_learning_rate * warmup_cosine(step / last, c.warmup))
        pixels = pixels if c.crop is None else random_crop(pixels, c.crop, noise)
        loss = network.codec.loss(to_tensor(pixels, network.device), noise).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        found = [p.grad for p in parameters if p.grad is not None]
        distributed.all_reduce_mean(shard.weight, loss.detach(), *found)
        norm = torch.nn.utils.clip_grad_norm_(parameters, c.clip_norm or math.inf)
        optimizer.step()
        yield Step(step + 1, shard.batch, {"loss": loss.item(), "gradient_norm": norm.item()})


def image_batches(
    dataset: Dataset, batch_size: int, seed: int, first: int, last: int
) -> Iterator[tuple[int, distributed.Shard, np.ndarray]]:
    """The steps of stage 1, each with this process's shard of the batch and its pixels, decoded ahead."""
    per_epoch = -(-len(dataset) // batch_size)
    for begin in range(first - first % per_epoch, last, per_epoch):
        end = min(begin + per_epoch, last)
        steps = batches(len(dataset), batch_size, seed, 1, max(first, begin), end)
        shards = [(step, distributed.shard(index)) for step, index in steps]
        order = np.concatenate([shard.images for _, shard in shards])
        pixels = dataset.batches(len(shards[0][1].images), order, workers_for(dataset))
        for (step, shard), decoded in zip(shards, pixels, strict=True):
            yield step, shard, decoded


def random_crop(pixels: np.ndarray, crop: int, noise: Noise) -> np.ndarray:
    """At most crop x crop pixels, at a random place for each image."""
    spare = np.maximum(np.array(pixels.shape[1:3]) - crop, 0)
    corner = (noise.uniform(10, 2).cpu().numpy() * (spare + 1)).astype(int)
    return np.stack([p[y : y + crop, x : x + crop] for p, (y, x) in zip(pixels, corner, strict=True)])


def to_tensor(pixels: np.ndarray, device: torch.device) -> Float[Tensor, "B C H W"]:
    """uint8 (B, H, W, C) to float (B, C, H, W) in [0, 1], channels last in memory."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2).float().div_(255)


def warmup_cosine(done: float, warmup: float) -> float:
    """Learning-rate schedule: a linear rise over the first `warmup` of training, and half a cosine down to 0."""
    rise = min(1.0, done / warmup + 0.05) if warmup else 1.0
    return rise * (0.5 + 0.5 * float(np.cos(np.pi * done)))


# Stage 2: the capsules.


def capsule_steps(
    network: Network,
    depth: int,
    codes: np.ndarray,
    optimizer: torch.optim.Optimizer,
    first: int,
    last: int,
    targets: GateTargets | None = None,
) -> Iterator[Step]:
    """Train layer `depth` of a network on codes (n, I, M), from step `first` to step `last`."""

    def inputs(index: np.ndarray) -> Float[Tensor, "B I M"]:
        return network.layer_input(code_batch(codes, index, network.device), depth)

    layer, config = network.stack[depth], network.config
    return layer_steps(layer, inputs, len(codes), config, optimizer, first, last, targets, stream=2 + depth)


def layer_steps(
    layer: CapsuleLayer,
    inputs: Callable[[np.ndarray], Float[Tensor, "B I M"]],
    count: int,
    config: Config,
    optimizer: torch.optim.Optimizer,
    first: int,
    last: int,
    targets: GateTargets | None = None,
    stream: int = 2,
) -> Iterator[Step]:
    """Contrastive divergence: each step routes with W fixed, then updates W with the routing fixed (section 3).

    `inputs` gives the layer's input for indices below `count`.
    """
    for step, index in batches(count, config.batch_size, config.seed, stream, first, last):
        shard = distributed.shard(index)
        noise = Noise(config.seed, step, torch.from_numpy(shard.images).to(layer.w_JNMI.device))
        with torch.no_grad():
            x = inputs(shard.images)
        temperature = 1.0 if targets else annealed(step / last, config)
        on, share = (targets.at(shard.images), targets.share) if targets else (None, None)
        decay = 1 - step / last
        set_learning_rate(optimizer, decay * capsule_learning_rate(layer, config))
        drawn, gate_weight = config.hidden_states == "drawn", config.gate_loss_weight
        gradient, info = contrastive.step(
            layer, x, noise, config.cd_steps, temperature, sample_hidden=drawn, on=on, gate_loss_weight=gate_weight
        )
        mean, square = x.mean(0), x.square().mean()
        distributed.all_reduce_mean(shard.weight, *gradient, *info, mean, square, layer.mean_routing)
        set_gradients(layer, gradient)
        optimizer.step()
        if layer.gate.exclusive:
            layer.balance(info.use, decay * config.balance_rate, share)
        metrics = {
            "reconstruction": info.reconstruction.item(),
            "baseline": (square - mean.square().mean()).item(),  # the error of always predicting the mean
            "confidence": info.confidence.item(),
            "routing_entropy": info.routing_entropy.item(),
            "weight_norm": layer.w_JNMI.norm().item(),
            "gradient_norm": gradient.w_JNMI.norm().item(),
            "temperature": temperature,
            "use": info.use.tolist(),
        }
        check_diverged(layer, metrics, step + 1, shard.batch if targets is None else 0)
        yield Step(step + 1, shard.batch, metrics)


def code_batch(codes: np.ndarray, index: np.ndarray, device: torch.device) -> Float[Tensor, "B I M"]:
    return torch.from_numpy(codes[index]).to(device).float()


def annealed(done: float, c: Config) -> float:
    """Temperature that falls to 1 by equal factors over the first `anneal_fraction` of training."""
    left = max(0.0, 1 - done / c.anneal_fraction) if c.anneal_fraction > 0 else 0.0
    return float(c.gate_temperature**left)


def check_diverged(layer: CapsuleLayer, metrics: dict[str, Any], step: int, images: int) -> None:
    """Stop a run that diverged or collapsed, before it spoils a checkpoint.

    It checks for collapse only in batches so large that one capsule does not win them all by chance.
    """
    scale, J = math.sqrt(layer.w_JNMI.numel()), layer.upper[0]
    if not metrics["weight_norm"] <= 100 * scale:  # NaN as well
        raise DivergedError(
            f"training diverged at step {step}: the weights have grown to {metrics['weight_norm'] / scale:.0f} on "
            "average; lower --learning-rate and run again (the last good checkpoint is kept)"
        )
    if layer.gate.exclusive and images * math.log(J) > 20 and max(metrics["use"]) > 0.995:
        raise DivergedError(
            f"training collapsed at step {step}: capsule {int(np.argmax(metrics['use']))} takes all images; raise "
            "--balance-rate or --gate-temperature, or lower --learning-rate, and run again "
            "(the last good checkpoint is kept)"
        )


@torch.no_grad()
def mean_input(network: Network, depth: int, codes: np.ndarray) -> Float[Tensor, "I M"]:
    """The mean input of a layer, over an even choice of the codes."""
    index = evenly_spaced(len(codes), 10_000)
    # On the CPU: not every device has float64.
    total = torch.zeros(network.stack[depth].lower, dtype=torch.float64)
    for start in range(0, len(index), 256):
        chunk = code_batch(codes, index[start : start + 256], network.device)
        total += network.layer_input(chunk, depth).cpu().double().sum(0)
    return (total / len(index)).float()
