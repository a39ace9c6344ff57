"""Search for the reading of the paper that reproduces its Figure 3.

    python -m benchmarks.quality.literal [DATA ...] [--size paper|tied] [--count N]
    python -m benchmarks.quality.literal --figure-1 docs/figures/routing-literal.svg

`readings.py` lists what the text leaves open. On MNIST at the small size each entry is varied alone in short
trainings, the best changes are combined, and the best of all are trained for longer (successive halving) and with two
more seeds. Other data sets and the paper's size get the best short training of each kind in `KINDS` on MNIST, with
and without routing. The size "tied" is the small one with an autoencoder whose decoder has the encoder's filters.

Samples are the paper's: one capsule on, its neurons sigmoid(N(0, 1)), all others 0, reverse routing (uniform, since a
single capsule agrees with itself), decoder; nothing is fitted. "factor" multiplies a capsule's logits: 1 is the text.
Where capsules reconstruct together, 20 is tried too, which undoes that they share an image. Where the weights on the
way down were 1 instead of c in training, they are so here.

FID punishes blur more than nonsense. So the search follows the FID after both sides are blurred, and the record
has other scores beside it:

    confidence       mean of the largest class probability, by the classifier of the FID
    distance         mean distance of a blurred sample to the nearest blurred test image (root mean square of pixels)
    classes          effective number of classes among the samples, by that classifier
    column           share of a capsule's samples in its most frequent class
    variation        standard deviation of a capsule's samples, relative to that of the test images

Each reading adds a row to the record literal-DATA-SIZE, and readings with a row are skipped: interrupt it at will.
"""

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from benchmarks import records
from benchmarks.quality.frozen import FrozenCodes
from benchmarks.quality.readings import READING, Reading, train
from capspoe.config import preset
from capspoe.errors import DivergedError
from capspoe.evaluate.data import EvaluationData
from capspoe.evaluate.features import as_tensor
from capspoe.evaluate.generation import fid
from capspoe.figures.routing import draw_routing, routed
from capspoe.figures.sheet import write
from capspoe.model.gates import place
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.run.pictures import tile, write_png

DEPENDS = (*records.TRAINING, "evaluate")
DATA = ("mnist", "fashion-mnist", "cifar10")
CHANNELS = {"small": 32, "paper": 128, "tied": 32}
AUTOENCODER_EPOCHS = {"small": 3, "paper": 1, "tied": 3}
SAMPLES = 1000
BLUR = 1.5  # pixels
POSES = 500  # images whose poses are compared with N(0, 1)
REAL = 2000  # test images that samples are compared with one by one
# Values to try beside those of READING, each alone.
OTHERS: dict[str, tuple[Any, ...]] = {
    "reconstruction": ("together",),
    "visible_bias": ("zero", "mean"),
    "hidden_bias": (True,),
    "learning_rate": (0.005, 0.02, 0.1, 0.2),
    "initial_std": (0.01, 0.02, 0.1),
    "hidden_states": ("drawn",),
    "visible_states": ("drawn",),
    "on": ("squash", "half"),
    "iterations": (3, 5, 10),
    "weight_decay": (0.0, 1e-3),
}
# Only with routing.
ROUTED: tuple[Reading, ...] = (
    {"iterations": 3, "sharpness": 3.0},
    {"iterations": 3, "normalize": "upper"},
    {"iterations": 3, "gradient": "through"},
)
# Together, a capsule needs another rate and other weights.
SHARED: Reading = {"reconstruction": "together", "learning_rate": 0.005, "initial_std": 0.01}
SHARED_OTHERS: tuple[Reading, ...] = (
    {},
    {"learning_rate": 0.002},
    {"learning_rate": 0.01},
    {"learning_rate": 0.02},
    {"initial_std": 0.003},
    {"initial_std": 0.05},
    {"iterations": 3},
    {"visible_bias": "mean"},
    {"hidden_states": "drawn"},
    {"on": "half"},
    {"weight_decay": 0.0},
)
# So does a capsule whose weights on the way down are 1; rate and weights are those of w = W / I.
FULL: Reading = {"reverse": "full", "learning_rate": 1.0, "initial_std": 3e-4}
FULL_OTHERS: tuple[Reading, ...] = (
    {},
    {"learning_rate": 0.3},
    {"learning_rate": 3.0},
    {"iterations": 3},
    {"hidden_states": "drawn"},
    {"on": "half"},
    {"initial_std": 3e-3},
)
FIRST = {"epochs": READING["epochs"], "images": READING["images"], "seed": READING["seed"]}
COMBINED = 4  # changes that are combined with the best one
LONGER = {"epochs": 50}
# Who reconstructs in the negative phase, and with which weights.
KINDS: dict[str, Reading] = {
    "together": {"reconstruction": "together"},
    "alone": {"reconstruction": "alone", "reverse": "same", "visible_states": "mean"},
    "alone, weights of 1 on the way down": {"reverse": "full"},
}
SEEDS = (1, 2)


class Judge:
    """Scores of samples beside the test images."""

    def __init__(self, data: EvaluationData) -> None:
        self.data = data
        self.real = data.test.pixels[:REAL].astype(np.float32) / 255
        self.blurred = blur(self.real)
        self.blurred_features = data.net.see(self.blurred)[0]
        self.deviation = float(self.real.std(0).mean())

    @torch.no_grad()
    def scores(self, images: np.ndarray, capsules: int) -> dict[str, Any]:
        """Of images (n, H, W, C), of the capsules in turn."""
        net = self.data.net
        logits = torch.cat([net(part) for part in as_tensor(images).split(500)])
        predicted = logits.argmax(1).numpy()
        counts = np.stack([np.bincount(predicted[j::capsules], minlength=logits.shape[1]) for j in range(capsules)])
        share = counts.sum(0) / counts.sum()
        entropy = -(share[share > 0] * np.log(share[share > 0])).sum()
        blurred = blur(images)
        pairs = torch.cdist(torch.from_numpy(blurred).flatten(1), torch.from_numpy(self.blurred).flatten(1))
        deviation = np.mean([images[j::capsules].std(0).mean() for j in range(capsules)])
        return {
            "fid": round(fid(self.data.real, net.see(images)[0]), 1),
            "fid_blurred": round(fid(self.blurred_features, net.see(blurred)[0]), 1),
            "confidence": round(float(torch.softmax(logits, 1).amax(1).mean()), 3),
            "distance": round(float(pairs.amin(1).mean()) / np.sqrt(blurred[0].size), 4),
            "classes": round(float(np.exp(entropy)), 2),
            "column": round(float((counts.max(1) / counts.sum(1)).mean()), 3),
            "variation": round(float(deviation) / self.deviation, 3),
        }


def blur(images: np.ndarray) -> np.ndarray:
    return gaussian_filter(images, (0, BLUR, BLUR, 0))


@torch.no_grad()
def paper_samples(network: Network, count: int, factor: float = 1.0) -> np.ndarray:
    """The samples of section 4.1, the capsules in turn."""
    J, N = network.top.upper
    rng = torch.Generator().manual_seed(1)
    h = torch.sigmoid(torch.randn(count, N, generator=rng))
    images = [
        network.down(place(part, on, J), None, factor, on)
        for part, on in zip(h.split(500), (torch.arange(count) % J).split(500), strict=True)
    ]
    return network.array(torch.cat(images))


@torch.no_grad()
def pose_deviation(network: Network, codes: np.ndarray) -> float:
    """Standard deviation of z over images, averaged over the neurons; the paper draws it from N(0, 1)."""
    z = network.top(torch.from_numpy(codes[:POSES]).float()).z
    return float(z.std(0).mean())


class Enough(Exception):
    """As many readings were trained as the command asked for."""


class Search:
    """The readings of a data set that were tried, and their scores."""

    def __init__(self, name: str, size: str, count: int = -1) -> None:
        self.left = count
        self.record = f"literal-{name}-{size}"
        config = preset(data=name, literal=True)
        config = config.replace(channels=CHANNELS[size], autoencoder_epochs=AUTOENCODER_EPOCHS[size])
        self.frozen = FrozenCodes(config, SAMPLES, tied=size == "tied")
        self.judge = Judge(self.frozen.data)
        self.pictures = Path("runs") / self.record
        self.rows: list[dict[str, Any]] = records.read(self.record, default=[])

    def controls(self) -> None:
        """Scores of real images, reconstructions and the blurred mean image, in the same judge."""
        if any("control" in row for row in self.rows):
            return
        test = self.frozen.data.test
        real = test.pixels[-SAMPLES:].astype(np.float32) / 255
        mean = np.repeat(test.pixels.mean(0, keepdims=True).astype(np.float32) / 255, SAMPLES, 0)
        decoded = self.frozen.data.decode(test.codes[-SAMPLES:])
        for control, images in {"test images": real, "reconstructions": decoded, "mean image": mean}.items():
            self.add({"control": control, **self.judge.scores(images, 20)})

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        records.write(self.record, self.rows, DEPENDS, extends=True)
        print(json.dumps(row), flush=True)

    def run(self, reading: Reading) -> None:
        """Train and score a reading, unless it has a row."""
        if any(row.get("reading") == reading for row in self.rows):
            return
        if self.left == 0:
            raise Enough
        self.left -= 1
        began = time.monotonic()
        row: dict[str, Any] = {"reading": reading}
        try:
            network = train(self.frozen.network, self.frozen.codes, reading)
        except DivergedError as error:
            self.add(row | {"diverged": str(error)})
            return
        J = network.top.upper[0]
        row["factors"] = {}
        for factor in sampling_factors(reading, network.top):
            images = paper_samples(network, SAMPLES, factor)
            row["factors"][str(factor)] = self.judge.scores(images, J)
            picture = tile(images[: 4 * J].reshape(4, J, *images.shape[1:]), scale=2)
            number = len(self.rows)
            write_png(picture, self.pictures / f"{number}-{factor}.png")
        row["weights_std"] = round(float(network.top.w_JNMI.detach().std()), 6)
        row["pose_std"] = round(pose_deviation(network, self.frozen.codes), 3)
        row["seconds"] = round(time.monotonic() - began, 1)
        self.add(row)

    def best(self, count: int, **fixed: Any) -> list[Reading]:
        return best_readings(self.rows, count, **fixed)


def best_readings(rows: Sequence[dict[str, Any]], count: int, **fixed: Any) -> list[Reading]:
    """The readings with the lowest blurred FID among those with the fixed values.

    It is that of the last factor on the logits: where capsules share an image, the one that undoes it.
    """
    scored = [row for row in rows if "factors" in row and fixed.items() <= row["reading"].items()]
    scored.sort(key=lambda row: list(row["factors"].values())[-1]["fid_blurred"])
    return [row["reading"] for row in scored[:count]]


def sampling_factors(reading: Reading, layer: CapsuleLayer) -> tuple[int, ...]:
    """Factors on the logits of a sample, that of the reading first."""
    if reading["reverse"] == "full":
        return (layer.fan,)  # W = fan w
    if reading["reconstruction"] == "together":
        return (1, layer.upper[0])
    return (1,)


def variations(reading: Reading) -> Iterable[Reading]:
    """The reading, and every other value of each entry alone."""
    yield reading
    for name, values in OTHERS.items():
        for value in values:
            yield reading | {name: value}
    for change in FULL_OTHERS:
        yield reading | FULL | change
    for change in SHARED_OTHERS:
        yield reading | SHARED | change
    for change in ROUTED:
        yield reading | change


def combinations(search: Search) -> Iterable[Reading]:
    """The best change of the text's reading together with each of the next best, where they do not clash."""
    alone = KINDS["alone"] | FIRST
    single = [reading for reading in search.best(COMBINED + 1, **alone) if reading != READING]
    if not single:
        return
    best, *others = (changes_of(reading) for reading in single)
    for other in others:
        yield READING | other | best


def changes_of(reading: Reading) -> Reading:
    return {name: value for name, value in reading.items() if value != READING[name]}


def successive_halving(search: Search) -> None:
    """Every entry alone, in short trainings; combinations; then the best of each kind for longer, and other seeds."""
    for reading in variations(READING):
        search.run(reading)
    for reading in list(combinations(search)):
        search.run(reading)
    for kind in KINDS.values():
        (best,) = search.best(1, **(kind | FIRST))
        search.run(best | LONGER)
        for seed in SEEDS:
            search.run(best | {"seed": seed})


def measure(name: str, size: str, count: int) -> None:
    search = Search(name, size, count)
    search.controls()
    if (name, size) == ("mnist", "small"):
        successive_halving(search)
    else:
        tried = records.read("literal-mnist-small")
        best = [reading for kind in KINDS.values() for reading in best_readings(tried, 1, **(kind | FIRST))]
        for reading in best:
            search.run(reading)
        for reading in best:
            routed = reading["iterations"] > 1
            search.run(reading | {"iterations": 1 if routed else 3})
    for reading in search.best(5):
        print(name, size, json.dumps(reading))


def draw_figure_1(path: Path) -> None:
    """Figure 1 of the paper: MNIST, 144 to 10 capsules, from the best reading of the text, with routing."""
    config = preset(data="mnist", literal=True)
    config = config.replace(
        channels=CHANNELS["small"], autoencoder_epochs=AUTOENCODER_EPOCHS["small"], layers="10x16"
    )
    frozen = FrozenCodes(config, SAMPLES)
    (reading,) = best_readings(records.read("literal-mnist-small"), 1, **(KINDS["together"] | FIRST))
    network = train(frozen.network, frozen.codes, reading | {"iterations": 3})
    view = routed(network, frozen.data.test.pixels[0])
    write(draw_routing(view, "test image 0", str(frozen.data.test.labels[0])), path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="DATA", default=DATA, help=f"default: {' '.join(DATA)}")
    parser.add_argument("--size", choices=tuple(CHANNELS), default="small")
    parser.add_argument("--count", type=int, default=-1, help="train at most this many readings of each data set")
    parser.add_argument("--figure-1", type=Path, metavar="FILE", help="only draw Figure 1 with the best reading")
    options = parser.parse_args(arguments)
    if options.figure_1 is not None:
        draw_figure_1(options.figure_1)
        return
    for name in options.data:
        with suppress(Enough):
            measure(name, options.size, options.count)


if __name__ == "__main__":
    main()
