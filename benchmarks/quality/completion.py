"""Halves of test images completed in several ways: python benchmarks/completion.py RUN ... [--count 200]

One half of each image is hidden: left, right, top, bottom, in turn. Every method sees the same images (by the run's
seed), and is scored by the squared error of the hidden half, summed over its pixels and averaged over images: for the
mean of its completions, and for a single one. benchmarks/records/completion-DATA.json has a row for each method and
run.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from capspoe import kernels
from capspoe.data import load
from capspoe.infer.complete import find_mask
from capspoe.model.gates import mask_off
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.run.model import CapsulePoE

RECORDS = Path(__file__).parent / "records"
HALVES = ("left", "right", "top", "bottom")
DRAWS = 8  # completions of each image
STEPS = 30  # of the chain in code space, and of decoder and encoder in turn
Method = Callable[[], Iterator[np.ndarray]]


def clamped_step(layer: CapsuleLayer, x: Tensor, clamped: Tensor, noise: Noise) -> tuple[Tensor, Tensor]:
    """A Gibbs step of x, which stays where `clamped`, by its capsule and pose; returns x and the mean of the new x.

    With the mean routing weights this leaves P(x | clamped units) invariant.
    """
    c = (layer.mean_routing / layer.fan).expand(len(x), -1, -1)
    z = layer.preactivation(x, c)
    on = noise.choose(0, layer.on_probability(z, x))
    h = mask_off(layer.sample_hidden(layer.hidden_mean(z), noise, 1), on)
    mean = layer.visible_mean(h, c, on)
    drawn = (noise.uniform(2, *layer.lower) < mean).to(mean)
    return torch.where(clamped, x, drawn), torch.where(clamped, x, mean)


class Bench:
    """A run, its training images, and test images with a hidden half."""

    def __init__(self, run: Path, count: int) -> None:
        self.model = CapsulePoE.load(run).requires_grad_(False)
        self.train = load(self.model.config.data, "train").pixels.astype(np.float32) / 255
        test, seed = load(self.model.config.data, "test").pixels, self.model.config.seed
        chosen = np.sort(np.random.default_rng(seed).choice(len(test), count, replace=False))
        self.images = test[chosen].astype(np.float32) / 255
        size = self.model.image[:2]
        self.hidden = np.stack([find_mask(HALVES[k % 4], size) for k in range(count)])[..., None]
        self.mean = self.train.mean(0)
        self.x = self.model.tensor(np.where(self.hidden, self.mean, self.images))
        self.noise = [Noise.for_batch(count, seed, step) for step in range(STEPS * DRAWS)]

    def groups(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows with the same half, their seen pixels, and which pixels those are."""
        flat = self.images.reshape(len(self.images), -1)
        for half in range(4):
            rows = np.arange(half, len(flat), 4)
            seen = ~np.broadcast_to(self.hidden[half], self.images.shape[1:]).ravel()
            yield rows, flat[rows][:, seen], seen

    def mean_image(self) -> Iterator[np.ndarray]:
        yield np.broadcast_to(self.mean, self.images.shape)

    def nearest(self, k: int = 1) -> Iterator[np.ndarray]:
        bank, found = self.train.reshape(len(self.train), -1), np.empty((k, *self.images.shape), np.float32)
        for rows, y, seen in self.groups():
            own = bank[:, seen]
            distance = np.square(own).sum(1) - 2 * y @ own.T
            best = np.argpartition(distance, range(k), 1)[:, :k]
            found[:, rows] = self.train[best.T]
        yield from found

    def gaussian(self) -> Iterator[np.ndarray]:
        """The conditional mean under one Gaussian of all principal components, with a little noise."""
        flat = self.train.reshape(len(self.train), -1).astype(np.float64)
        mean, covariance, found = flat.mean(0), np.cov(flat.T), np.empty(self.images.shape, np.float32)
        for rows, y, seen in self.groups():
            own = covariance[np.ix_(seen, seen)] + 0.01 * np.eye(seen.sum())
            guess = mean + np.linalg.solve(own, (y - mean[seen]).T).T @ covariance[seen]
            found[rows] = guess.clip(0, 1).reshape(-1, *self.images.shape[1:])
        yield found

    def posterior(self) -> Iterator[np.ndarray]:
        images = np.where(self.hidden, 0, self.images)
        yield from self.model.complete(images, self.hidden[..., 0], DRAWS, self.model.config.seed).images.swapaxes(
            0, 1
        )

    def code_chain(self) -> Iterator[np.ndarray]:
        """Codes stay whose receptive field is mostly seen; the chain draws the others.

        No field of two 9x9 convolutions lies in one half. The hidden pixels are those of the mean image.
        """
        model, top = self.model, self.model.top
        kernel = torch.ones(1, 1, 2 * model.codec.kernel - 1, 2 * model.codec.kernel - 1)
        hidden = F.conv2d(torch.from_numpy(self.hidden).float().permute(0, 3, 1, 2), kernel, stride=2)
        share = hidden / kernel.numel()
        share = share.expand(-1, model.codec.channels // 8, -1, -1).permute(0, 2, 3, 1).flatten(1)
        code = model.codec.encode(self.x)
        clamped = (share < 0.5)[:, :, None].expand_as(code)
        x = (Noise.for_batch(len(code), 99).uniform(0, *top.lower) < code).to(code)
        for k in range(DRAWS):
            for step in range(STEPS):
                x, mean = clamped_step(top, torch.where(clamped, code, x), clamped, self.noise[k * STEPS + step])
            yield model.array(model.codec.decode(mean))

    def iterated(self) -> Iterator[np.ndarray]:
        """Encode, draw the capsule and its pose, decode, put back what is seen, and again."""
        model, x, hidden = self.model, self.x, torch.from_numpy(self.hidden).permute(0, 3, 1, 2)
        for k in range(DRAWS):
            for step in range(STEPS if k == 0 else STEPS // 3):
                up, noise = model.up(x), self.noise[k * STEPS + step]
                on = noise.choose(0, up.on)
                h = mask_off(model.top.sample_hidden(up.hidden, noise, 1), on)
                decoded = model.down(h, up.c, 1.0, on)
                x = torch.where(hidden, decoded, self.x)
            yield model.array(decoded)

    def methods(self) -> dict[str, Method]:
        return {
            "mean image": self.mean_image,
            "nearest neighbour": self.nearest,
            "20 nearest neighbours": lambda: self.nearest(20),
            "PCA, conditional Gaussian": self.gaussian,
            "capsules: chain in code space": self.code_chain,
            "capsules: decoder and encoder in turn": self.iterated,
            "capsules: posterior of the pose": self.posterior,
        }

    def error(self, completed: np.ndarray) -> float:
        return float((np.square(completed - self.images) * self.hidden).sum((1, 2, 3)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--only", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for run in options.runs:
        bench = Bench(run, options.count)
        path = RECORDS / f"completion-{bench.model.config.data}.json"
        record = json.loads(path.read_text()) if path.exists() else []
        for name, method in bench.methods().items():
            if options.only and name not in options.only:
                continue
            start = time.process_time()
            drawn = np.stack(list(method()))
            row = {
                "method": name,
                "seed": bench.model.config.seed,
                "images": options.count,
                "draws": len(drawn),
                "error": round(bench.error(drawn.mean(0)), 3),
                "error_of_one": round(float(np.mean([bench.error(one) for one in drawn])), 3),
                "cpu_seconds": round((time.process_time() - start) / options.count, 4),
            }
            print(row, flush=True)
            record = [old for old in record if (old["method"], old["seed"]) != (name, row["seed"])] + [row]
            path.write_text("[\n" + ",\n".join(f" {json.dumps(each)}" for each in record) + "\n]\n")


if __name__ == "__main__":
    with kernels.use("reference"), torch.no_grad():
        main()
