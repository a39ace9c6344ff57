"""Search for the reading of the paper that reproduces its Figure 3.

    python -m benchmarks.quality.literal [DATA ...] [--size paper|tied|robust] [--count N]
    python -m benchmarks.quality.literal --figure-1 docs/figures/routing-literal.svg

`readings.py` lists what the text leaves open. On MNIST at the small size each entry is varied alone in short
trainings, for each kind in `KINDS`. The best changes of a kind are combined. Its best reading, and `CHOSEN`, which
was chosen by eye, are trained with two more seeds and for longer (successive halving). Other data sets and sizes get
the chosen one, with and without routing, and the best short training of each kind on MNIST. Fashion-MNIST also gets
each change where capsules reconstruct together. The size "tied" is the small one with an autoencoder whose decoder
has the encoder's filters; "robust" has one with dropout .5, LeakyReLU of slope .2 and 20 epochs.

Samples are the paper's: one capsule on, its neurons sigmoid(N(0, 1)), all others 0, reverse routing (uniform, since a
single capsule agrees with itself), decoder; nothing is fitted. "factor" multiplies a capsule's logits: 1 is the text.
Where capsules reconstruct together, others are tried: I / J, which is the text with reverse routing normalised over
the upper capsules; and J, or with dropout the mean number of capsules that are on, which undoes that capsules share
an image. Where the weights on the way down were 1 instead of c in training, they are so here.

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
import itertools
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from benchmarks import records
from benchmarks.quality.frozen import FrozenCodes
from benchmarks.quality.readings import READING, Reading, train
from capspoe.config import Config, preset
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
SAMPLES = 1000
BLUR = 1.5  # pixels
POSES = 500  # images whose poses are compared with N(0, 1)
REAL = 2000  # test images that samples are compared with one by one


class Size(NamedTuple):
    """An autoencoder of the paper's kind. `altered` is a name in `frozen.ALTERATIONS`."""

    channels: int
    epochs: int
    dropout: float = 0.1
    altered: str | None = None


SIZES = {
    "small": Size(32, 3),
    "paper": Size(128, 1),
    "tied": Size(32, 3, altered="tied"),
    "robust": Size(32, 20, dropout=0.5, altered="steep"),
}


class Kind(NamedTuple):
    """Readings that agree about who reconstructs in the negative phase, and with which weights.

    fixed     what its readings have in common
    base      the values that each change starts from, beside those of READING
    changes   other values, tried one at a time
    """

    fixed: Reading
    base: Reading
    changes: tuple[Reading, ...]


def each(**values: Sequence[Any]) -> tuple[Reading, ...]:
    """A change for each of the values."""
    return tuple({name: value} for name, several in values.items() for value in several)


def all_of(**values: Sequence[Any]) -> tuple[Reading, ...]:
    """A change for each combination of the values."""
    return tuple(dict(zip(values, several, strict=True)) for several in itertools.product(*values.values()))


# Ways to route that differ from three iterations over the lower capsules.
ROUTED: tuple[Reading, ...] = (
    {"iterations": 3, "sharpness": 3.0},
    {"iterations": 3, "normalize": "upper"},
)
KINDS = {
    "together": Kind(
        fixed={"reconstruction": "together"},
        base={"reconstruction": "together", "learning_rate": 0.005, "initial_std": 0.01},
        changes=(
            {"learning_rate": 0.05, "initial_std": 0.05},
            *each(
                learning_rate=(0.001, 0.002, 0.01, 0.02),
                initial_std=(0.003, 0.02, 0.05),
                visible_bias=("zero", "mean"),
                hidden_bias=(True,),
                hidden_states=("drawn",),
                visible_states=("drawn",),
                on=("squash", "one", 0.5, 0.2, 0.1),
                iterations=(3, 5, 10),
                weight_decay=(0.0, 1e-3),
            ),
            *ROUTED,
            # The fewer capsules are on, the fewer learn from an image: so with higher rates.
            *all_of(on=(0.5,), learning_rate=(0.01, 0.02)),
            *all_of(on=(0.2,), learning_rate=(0.02, 0.05)),
            *all_of(on=(0.1,), learning_rate=(0.05,)),
            *all_of(on=(0.5,), learning_rate=(0.01,), iterations=(3,)),
        ),
    ),
    "alone": Kind(
        # Drawn visible states, one image for each capsule, take several times as long and change little.
        fixed={"reconstruction": "alone", "reverse": "same", "visible_states": "mean"},
        base={},
        changes=(
            *each(
                learning_rate=(0.005, 0.02, 0.1, 0.2),
                initial_std=(0.01, 0.02, 0.1),
                visible_bias=("zero", "mean"),
                hidden_bias=(True,),
                hidden_states=("drawn",),
                visible_states=("drawn",),
                on=("squash", 0.5),
                iterations=(3, 5, 10),
                weight_decay=(0.0, 1e-3),
            ),
            *ROUTED,
            {"iterations": 3, "gradient": "through"},
        ),
    ),
    # The learning rate and the initial weights are those of w = W / I.
    "alone, weights of 1 on the way down": Kind(
        fixed={"reverse": "full"},
        base={"reverse": "full", "learning_rate": 1.0, "initial_std": 3e-4},
        changes=each(
            learning_rate=(0.3, 3.0),
            initial_std=(3e-3,),
            iterations=(3,),
            hidden_states=("drawn",),
            on=(0.5,),
        ),
    ),
}
# What `--literal` does, with routing: chosen by eye among the readings with the best scores.
CHOSEN: Reading = READING | KINDS["together"].base | {"on": 0.5}
FIRST = {"epochs": READING["epochs"], "images": READING["images"], "seed": READING["seed"]}
COMBINED = 3  # changes that are combined in pairs
LONGER = (20, 50)  # epochs
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
    """The samples of section 4.1, the capsules in turn; `factor` multiplies a capsule's logits, not the bias."""
    J, N = network.top.upper
    rng = torch.Generator().manual_seed(1)
    h = torch.sigmoid(torch.randn(count, N, generator=rng))
    images = [
        network.down(place(factor * part, on, J), None, 1.0, on)
        for part, on in zip(h.split(500), (torch.arange(count) % J).split(500), strict=True)
    ]
    return network.array(torch.cat(images))


@torch.no_grad()
def pose_deviation(network: Network, codes: np.ndarray) -> float:
    """Standard deviation of z over images, averaged over the neurons; the paper draws it from N(0, 1)."""
    z = network.top(torch.from_numpy(codes[:POSES]).float()).z
    return float(z.std(0).mean())


def config_of(name: str, size: Size) -> Config:
    config = preset(data=name, literal=True)
    return config.replace(channels=size.channels, autoencoder_epochs=size.epochs, dropout=size.dropout)


class Enough(Exception):
    """As many readings were trained as the command asked for."""


class Search:
    """The readings of a data set that were tried, and their scores."""

    def __init__(self, name: str, size: str, count: int = -1) -> None:
        self.left = count
        self.record = f"literal-{name}-{size}"
        self.frozen = FrozenCodes(config_of(name, SIZES[size]), SAMPLES, SIZES[size].altered)
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
            row["factors"][f"{factor:g}"] = self.judge.scores(images, J)
            picture = tile(images[: 4 * J].reshape(4, J, *images.shape[1:]), scale=2)
            number = len(self.rows)
            write_png(picture, self.pictures / f"{number}-{factor:g}.png")
        row["weights_std"] = round(float(network.top.w_JNMI.detach().std()), 6)
        row["pose_std"] = round(pose_deviation(network, self.frozen.codes), 3)
        row["seconds"] = round(time.monotonic() - began, 1)
        self.add(row)

    def best(self, count: int, **fixed: Any) -> list[Reading]:
        return best_readings(self.rows, count, **fixed)


def best_readings(rows: Sequence[dict[str, Any]], count: int, **fixed: Any) -> list[Reading]:
    """The readings with the lowest blurred FID among those with the fixed values, each at its best factor."""
    scored = [row for row in rows if "factors" in row and fixed.items() <= row["reading"].items()]
    scored.sort(key=lambda row: min(scores["fid_blurred"] for scores in row["factors"].values()))
    return [row["reading"] for row in scored[:count]]


def sampling_factors(reading: Reading, layer: CapsuleLayer) -> tuple[float, ...]:
    """Factors on the logits of a sample, that of the reading first."""
    if reading["reverse"] == "full":
        return (float(layer.fan),)  # W = fan w
    if reading["reconstruction"] == "together":
        J = layer.upper[0]
        factors = {1.0, layer.fan / J, float(J)}
        if isinstance(reading["on"], float):
            factors.add(J * reading["on"])
        return tuple(sorted(factors))
    return (1.0,)


def combinations(search: Search, kind: Kind) -> list[Reading]:
    """The best changes of a kind in pairs, where they do not clash; the better one comes last."""
    start = READING | kind.base
    singles = [start | change for change in kind.changes]
    best = [changes_of(r, start) for r in search.best(len(search.rows), **(kind.fixed | FIRST)) if r in singles]
    pairs = []
    for better, worse in itertools.combinations(best[:COMBINED], 2):
        if not better.keys() & worse.keys():
            pairs.append(start | worse | better)
    return pairs


def changes_of(reading: Reading, start: Reading) -> Reading:
    return {name: value for name, value in reading.items() if value != start[name]}


def successive_halving(search: Search) -> None:
    """Try every change alone, then combinations; then train the chosen and the best longer, and with other seeds."""
    for kind in KINDS.values():
        for change in ({}, *kind.changes):
            search.run(READING | kind.base | change)
    for kind in KINDS.values():
        for reading in combinations(search, kind):
            search.run(reading)
    finalists = [
        CHOSEN,
        with_routing(CHOSEN),
        *(search.best(1, **(kind.fixed | FIRST))[0] for kind in KINDS.values()),
    ]
    for reading in finalists:
        search.run(reading)
        for epochs in LONGER:
            search.run(reading | {"epochs": epochs})
        for seed in SEEDS:
            search.run(reading | {"seed": seed})


def with_routing(reading: Reading) -> Reading:
    return reading | {"iterations": 3}


def transfer(search: Search) -> None:
    """The chosen reading with and without routing, then the best short training of each kind on MNIST."""
    search.run(CHOSEN)
    search.run(with_routing(CHOSEN))
    tried = records.read("literal-mnist-small")
    for kind in KINDS.values():
        (best,) = best_readings(tried, 1, **(kind.fixed | FIRST))
        search.run(best)


def measure(name: str, size: str, count: int) -> None:
    search = Search(name, size, count)
    search.controls()
    if (name, size) == ("mnist", "small"):
        successive_halving(search)
    else:
        transfer(search)
    if (name, size) == ("fashion-mnist", "small"):
        together = KINDS["together"]
        for change in together.changes:
            search.run(READING | together.base | change)
    for reading in search.best(5):
        print(name, size, json.dumps(reading))


def draw_figure_1(path: Path) -> None:
    """Figure 1 of the paper: MNIST, 144 to 10 capsules, from the best reading of the text, with routing."""
    frozen = FrozenCodes(config_of("mnist", SIZES["small"]).replace(layers="10x16"), SAMPLES)
    network = train(frozen.network, frozen.codes, with_routing(CHOSEN))
    view = routed(network, frozen.data.test.pixels[0])
    write(draw_routing(view, "test image 0", str(frozen.data.test.labels[0])), path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="DATA", default=DATA, help=f"default: {' '.join(DATA)}")
    parser.add_argument("--size", choices=tuple(SIZES), default="small")
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
