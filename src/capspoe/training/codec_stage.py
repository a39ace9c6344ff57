"""Stage 1: the codec learns to reproduce images from their codes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from capspoe import distributed
from capspoe.data import Dataset, workers_for
from capspoe.model.noise import Noise
from capspoe.training.codes import to_tensor
from capspoe.training.optimizers import make_optimizer, optimizer_tensors, restore_optimizer, set_learning_rate
from capspoe.training.stage import Schedule, Stage, Step, Training

STREAM = 1  # of the order of the images
CROP_STREAM = 10


@dataclass
class CodecStage(Stage):
    """Gradient descent on the codec's own loss.

    Parameters
    ----------
    schedule : epochs and batches
    optimizer : "adam" or "sgd"
    learning_rate : its peak; it rises at first, and falls to 0 by half a cosine
    weight_decay : l2 on weights, not on biases
    momentum : of SGD
    warmup : fraction of the stage in which the learning rate rises
    clip_norm : largest norm of the gradient; None does not clip
    """

    schedule: Schedule
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    momentum: float = 0.9
    warmup: float = 0.05
    clip_norm: float | None = 1.0

    name = "autoencoder"
    title = "1 autoencoder"
    shown = ("loss",)

    def steps(self, count: int) -> int:
        return self.schedule.steps(count)

    def begin(self, training: Training, first: int, state: dict[str, Tensor]) -> None:
        if message := self.schedule.extra_epochs(training.count):
            training.info(message)
        parameters = [p for p in training.network.codec.parameters() if p.requires_grad]
        weights = [p for p in parameters if p.ndim > 1]
        biases = [p for p in parameters if p.ndim <= 1]
        self._descent = make_optimizer(
            self.optimizer, weights, biases, self.learning_rate, self.weight_decay, self.momentum
        )
        restore_optimizer(self._descent, state)

    def state(self) -> dict[str, Tensor]:
        return optimizer_tensors(self._descent)

    def run(self, training: Training, first: int, last: int) -> Iterator[Step]:
        network = training.network
        assert training.images is not None
        parameters = [p for p in network.codec.parameters() if p.requires_grad]
        for step, shard, pixels in image_batches(training.images, self.schedule, first, last):
            noise = Noise(self.schedule.seed, step, torch.from_numpy(shard.images).to(network.device))
            set_learning_rate(self._descent, self.learning_rate * warmup_cosine(step / last, self.warmup))
            if network.crop is not None:
                pixels = random_crop(pixels, network.crop, noise)
            loss = network.codec.loss(to_tensor(pixels, network.device), noise).mean()
            self._descent.zero_grad(set_to_none=True)
            loss.backward()
            gradients = [p.grad for p in parameters if p.grad is not None]
            distributed.all_reduce_mean(shard.weight, loss.detach(), *gradients)
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.clip_norm or math.inf)
            self._descent.step()
            yield Step(step + 1, shard.batch, {"loss": loss.item(), "gradient_norm": norm.item()})


def image_batches(
    dataset: Dataset, schedule: Schedule, first: int, last: int
) -> Iterator[tuple[int, distributed.Shard, np.ndarray]]:
    """The steps of stage 1, each with this process's shard of the batch and its pixels, decoded ahead."""
    per_epoch = schedule.steps_per_epoch(len(dataset))
    for begin in range(first - first % per_epoch, last, per_epoch):
        end = min(begin + per_epoch, last)
        steps = schedule.batches(len(dataset), STREAM, max(first, begin), end)
        shards = [(step, distributed.shard(index)) for step, index in steps]
        order = np.concatenate([shard.images for _, shard in shards])
        pixels = dataset.batches(len(shards[0][1].images), order, workers_for(dataset))
        for (step, shard), decoded in zip(shards, pixels, strict=True):
            yield step, shard, decoded


def random_crop(pixels: np.ndarray, crop: int, noise: Noise) -> np.ndarray:
    """At most crop x crop pixels, at a random place for each image."""
    spare = np.maximum(np.array(pixels.shape[1:3]) - crop, 0)
    corner = (noise.uniform(CROP_STREAM, 2).cpu().numpy() * (spare + 1)).astype(int)
    cropped = [image[top : top + crop, left : left + crop] for image, (top, left) in zip(pixels, corner, strict=True)]
    return np.stack(cropped)


def warmup_cosine(done: float, warmup: float) -> float:
    """Learning-rate schedule: a linear rise over the first `warmup` of training, and half a cosine down to 0."""
    rise = min(1.0, done / warmup + 0.05) if warmup else 1.0
    return rise * (0.5 + 0.5 * float(np.cos(np.pi * done)))
