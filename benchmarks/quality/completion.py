"""Measure how well hidden halves of test images are completed, in several ways.

    python -m benchmarks.quality.completion RUN ... [--count 200]

One half of each image is hidden: left, right, top, bottom, in turn. Every method sees the same images (by the run's
seed), and is scored by the squared error of the hidden half, summed over its pixels and averaged over images: for the
mean of its completions, and for a single one. The record completion-DATA has a row for each method and run.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks import records
from capspoe import kernels
from capspoe.data import load
from capspoe.infer.complete import find_mask
from capspoe.model.gates import only
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.run.model import CapsulePoE

DEPENDS = (*records.TRAINING, "infer")
HALVES = ("left", "right", "top", "bottom")
DRAWS = 8  # completions of each image
STEPS = 30  # of the chain in code space, and of decoder and encoder in turn
PIXEL_VARIANCE = 0.01  # added noise of the Gaussian of pixels


class Halves:
    """A run, its training images, and test images with a hidden half."""

    def __init__(self, run: Path, count: int) -> None:
        self.model = CapsulePoE.load(run).requires_grad_(False)
        self.seed = self.model.config.seed
        self.train = load(self.model.config.data, "train").pixels.astype(np.float32) / 255
        test = load(self.model.config.data, "test").pixels
        chosen = np.random.default_rng(self.seed).choice(len(test), count, replace=False)
        self.images = test[np.sort(chosen)].astype(np.float32) / 255
        masks = [find_mask(HALVES[k % len(HALVES)], self.model.image[:2]) for k in range(count)]
        self.hidden = np.stack(masks)[..., None]
        self.mean = self.train.mean(0)
        self.x = self.model.tensor(np.where(self.hidden, self.mean, self.images))

    def noise(self, step: int) -> Noise:
        return Noise.for_batch(len(self.images), self.seed, step)

    def by_half(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows with the same hidden half, and which of all numbers of an image are seen."""
        for half in range(len(HALVES)):
            rows = np.arange(half, len(self.images), len(HALVES))
            seen = ~np.broadcast_to(self.hidden[half], self.images.shape[1:]).ravel()
            yield rows, seen

    def error(self, completed: np.ndarray) -> float:
        squared = np.square(completed - self.images) * self.hidden
        return float(squared.sum((1, 2, 3)).mean())


def mean_image(halves: Halves) -> Iterator[np.ndarray]:
    yield np.broadcast_to(halves.mean, halves.images.shape)


def nearest_neighbours(halves: Halves, k: int = 1) -> Iterator[np.ndarray]:
    """The training images that are nearest in the seen half."""
    bank = halves.train.reshape(len(halves.train), -1)
    flat = halves.images.reshape(len(halves.images), -1)
    completed = np.empty((k, *halves.images.shape), np.float32)
    for rows, seen in halves.by_half():
        seen_bank = bank[:, seen]
        # |a - b|^2 without |b|^2, which is the same for all neighbours of an image
        distance = np.square(seen_bank).sum(1) - 2 * flat[rows][:, seen] @ seen_bank.T
        nearest = np.argpartition(distance, range(k), 1)[:, :k]
        completed[:, rows] = halves.train[nearest.T]
    yield from completed


def conditional_gaussian(halves: Halves) -> Iterator[np.ndarray]:
    """The conditional mean under one Gaussian of all principal components, with a little noise."""
    bank = halves.train.reshape(len(halves.train), -1).astype(np.float64)
    flat = halves.images.reshape(len(halves.images), -1)
    mean = bank.mean(0)
    covariance = np.cov(bank.T)
    completed = np.empty(flat.shape, np.float32)
    for rows, seen in halves.by_half():
        of_seen = covariance[np.ix_(seen, seen)] + PIXEL_VARIANCE * np.eye(seen.sum())
        difference = flat[rows][:, seen] - mean[seen]
        completed[rows] = mean + np.linalg.solve(of_seen, difference.T).T @ covariance[seen]
    yield completed.clip(0, 1).reshape(halves.images.shape)


def posterior_of_the_pose(halves: Halves) -> Iterator[np.ndarray]:
    """What `capspoe complete` does."""
    images = np.where(halves.hidden, 0, halves.images)
    completions = halves.model.complete(images, halves.hidden[..., 0], DRAWS, halves.seed)
    yield from completions.images.swapaxes(0, 1)


def clamped_step(layer: CapsuleLayer, x: Tensor, clamped: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """A Gibbs step of x, which stays where `clamped`, by its capsule and pose; returns x and the mean of the new x.

    With the mean routing weights this leaves P(x | clamped units) invariant.
    """
    c = (layer.mean_routing / layer.fan).expand(len(x), -1, -1)
    z = layer.preactivation(x, c)
    on = noise.choose(0, layer.on_probability(z, x))
    h = only(layer.sample_hidden(layer.hidden_mean(z), noise, 1), on)
    mean = layer.visible_mean(h, c, on)
    drawn = (noise.uniform(2, *layer.lower) < mean).to(mean)
    return torch.where(clamped, x, drawn), torch.where(clamped, x, mean)


def hidden_share(halves: Halves) -> Tensor:
    """How much of the receptive field of each lower capsule is hidden, (B, I)."""
    codec = halves.model.codec
    side = 2 * codec.kernel - 1
    window = torch.ones(1, 1, side, side)
    hidden = torch.from_numpy(halves.hidden).float().permute(0, 3, 1, 2)
    share = F.conv2d(hidden, window, stride=2) / window.numel()
    return share.expand(-1, codec.channels // 8, -1, -1).permute(0, 2, 3, 1).flatten(1)


def chain_in_code_space(halves: Halves) -> Iterator[np.ndarray]:
    """Codes stay whose receptive field is mostly seen; the chain draws the others.

    No field of two 9x9 convolutions lies in one half. The hidden pixels are those of the mean image.
    """
    model = halves.model
    code = model.codec.encode(halves.x)
    clamped = (hidden_share(halves) < 0.5)[:, :, None].expand_as(code)
    start = Noise.for_batch(len(code), 99)
    x = (start.uniform(0, *model.top.lower) < code).to(code)
    for draw in range(DRAWS):
        for step in range(STEPS):
            noise = halves.noise(draw * STEPS + step)
            x, mean = clamped_step(model.top, torch.where(clamped, code, x), clamped, noise)
        yield model.array(model.codec.decode(mean))


def decoder_and_encoder(halves: Halves) -> Iterator[np.ndarray]:
    """Encode, draw the capsule and its pose, decode, put back what is seen, and again."""
    model = halves.model
    hidden = torch.from_numpy(halves.hidden).permute(0, 3, 1, 2)
    x = halves.x
    for draw in range(DRAWS):
        # The first completion takes the whole way; later ones start where the one before ended.
        steps = STEPS if draw == 0 else STEPS // 3
        for step in range(steps):
            noise = halves.noise(draw * STEPS + step)
            up = model.up(x)
            on = noise.choose(0, up.on)
            h = only(model.top.sample_hidden(up.hidden, noise, 1), on)
            decoded = model.down(h, up.c, 1.0, on)
            x = torch.where(hidden, decoded, halves.x)
        yield model.array(decoded)


METHODS: dict[str, Callable[[Halves], Iterator[np.ndarray]]] = {
    "mean image": mean_image,
    "nearest neighbour": nearest_neighbours,
    "20 nearest neighbours": partial(nearest_neighbours, k=20),
    "PCA, conditional Gaussian": conditional_gaussian,
    "capsules: chain in code space": chain_in_code_space,
    "capsules: decoder and encoder in turn": decoder_and_encoder,
    "capsules: posterior of the pose": posterior_of_the_pose,
}


def measure(halves: Halves, method: str) -> dict[str, Any]:
    began = time.process_time()
    completions = np.stack(list(METHODS[method](halves)))
    errors = [halves.error(completion) for completion in completions]
    return {
        "method": method,
        "seed": halves.seed,
        "images": len(halves.images),
        "draws": len(completions),
        "error": round(halves.error(completions.mean(0)), 3),
        "error_of_one": round(float(np.mean(errors)), 3),
        "cpu_seconds": round((time.process_time() - began) / len(halves.images), 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", nargs="+", metavar="METHOD", choices=METHODS, default=list(METHODS))
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for run in options.runs:
        halves = Halves(run, options.count)
        name = f"completion-{halves.model.config.data}"
        for method in options.only:
            with kernels.use("reference"), torch.no_grad():
                row = measure(halves, method)
            print(row, flush=True)
            others = [
                other
                for other in records.read(name, default=[])
                if (other["method"], other["seed"]) != (method, halves.seed)
            ]
            records.write(name, [*others, row], DEPENDS, extends=True)


if __name__ == "__main__":
    main()
