"""Where routing might win: small parts, clutter, and viewpoints that training did not show.

    python -m benchmarks.quality.parts [TRIAL ...] [--seeds N] [--epochs N]

    pixels       MNIST as patches of 4x4 pixels, so that a lower capsule is a part of a stroke. Those of the
                 autoencoder see 17x17 of the 28x28 pixels. Tested on clean and on cluttered digits.
    clutter      the same, trained on digits with fragments of two others: parts that do not agree
    clutter-17   the same clutter, in the codes of the autoencoder of the network that ships with the package
    views        shapes of five cubes (`shapes.py`) as patches of 4x4 pixels, trained on azimuths up to 60 degrees and
                 elevations of 20 to 45. Tested on new shapes there ("seen"), on azimuths of 60 to 100 ("azimuth") and
                 elevations of 50 to 75 ("elevation").
    views-17     the same shapes, in the codes of an autoencoder that was trained on them

All variants of a trial share codes and gate targets, the spectral clusters of its own training images. The scores of
each test set are the purity of the capsules that are on, the accuracy if a capsule names its most common class in
training ("gate"), and the accuracy of ridge regression from all poses, fitted to the training images ("probe").

Without routing the poses are a linear function of the codes, and with it they are not. So every trial also has the
probe of the codes themselves, which no linear function of them can be expected to beat.

Each variant and seed adds a row to the record `parts`, and those with a row are skipped.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import records
from benchmarks.quality.routing import VARIANTS, controlled_layer
from benchmarks.quality.scenes.bench import most_common_labels
from benchmarks.quality.scenes.data import make_scenes
from benchmarks.quality.shapes import Range, Views, draw_shapes
from benchmarks.quality.variants import CD, KnownTargets, RidgeProbe, flat_poses, mean_and_range, rounded
from capspoe import data
from capspoe.config import Config, preset
from capspoe.data import ArrayDataset, Images
from capspoe.evaluate.clustering import clustering_scores
from capspoe.evaluate.data import encode_codes
from capspoe.model.build import build_layers
from capspoe.model.codec import Codec
from capspoe.model.network import Network
from capspoe.model.pixels import Pixels
from capspoe.run.bundled import BUNDLED
from capspoe.run.model import CapsulePoE
from capspoe.training.build import capsule_stage, codec_stage
from capspoe.training.codes import codes_in_memory
from capspoe.training.fit import fit
from capspoe.training.stage import Training
from capspoe.training.targets import SpectralTargets

RECORD = "parts"
DEPENDS = (*records.TRAINING, "infer/audit.py", "evaluate/clustering.py")
TRAIN_IMAGES = 20_000
TEST_IMAGES = 5_000
IMAGE = (28, 28, 1)
CODES = "the codes themselves"
PIXELS_RATE = 1e-3  # with patches of pixels, sharp routing diverges at the default rate
SEEN = Views(azimuth=Range(-60, 60), elevation=Range(20, 45))
NEW_VIEWS = {
    "azimuth": SEEN._replace(azimuth=Range(60, 100)),
    "elevation": SEEN._replace(elevation=Range(50, 75)),
}


class Setting(NamedTuple):
    """What the capsules of a trial learn from, and what they are tested on."""

    codec: Codec
    train: Images
    tests: dict[str, Images]
    learning_rate: float = CD["learning_rate"]


def clean(split: str, count: int) -> Images:
    images = data.load("mnist", split)
    return Images(images.pixels[:count], images.labels[:count])


def cluttered(images: Images, seed: int) -> Images:
    """As many digits with fragments of two others, drawn from these."""
    scenes = make_scenes(images, "fragments", len(images.pixels), seed)
    assert scenes.labels is not None
    return Images(scenes.images, scenes.labels[:, 0])


def digits(codec: Codec, with_clutter: bool) -> Setting:
    train = clean("train", TRAIN_IMAGES)
    if with_clutter:
        train = cluttered(train, 0)
    test = clean("test", TEST_IMAGES)
    return setting_of(codec, train, {"clean": test, "cluttered": cluttered(test, 1)})


def views(codec: Codec | None = None) -> Setting:
    """Shapes of cubes. Without a codec, an autoencoder is trained on the training images."""
    train = draw_shapes(TRAIN_IMAGES, SEEN, 0)
    tests = {"seen": draw_shapes(TEST_IMAGES, SEEN, 1)}
    for number, (name, held_out) in enumerate(NEW_VIEWS.items()):
        tests[name] = draw_shapes(TEST_IMAGES, held_out, 2 + number)
    if codec is None:
        codec = trained_autoencoder(train.pixels)
    return setting_of(codec, train, tests)


def setting_of(codec: Codec, train: Images, tests: dict[str, Images]) -> Setting:
    """The same learning rate for all variants of a trial."""
    setting = Setting(codec, train, tests)
    return setting._replace(learning_rate=PIXELS_RATE) if isinstance(codec, Pixels) else setting


def trained_autoencoder(pixels: np.ndarray) -> Codec:
    config = preset("small")
    network = CapsulePoE.build(config, IMAGE)
    fit(network, pixels, [codec_stage(config)])
    return network.codec


TRIALS = {
    "pixels": lambda: digits(Pixels(IMAGE), with_clutter=False),
    "clutter": lambda: digits(Pixels(IMAGE), with_clutter=True),
    "views": lambda: views(Pixels(IMAGE)),
    "clutter-17": lambda: digits(CapsulePoE.load(BUNDLED).codec, with_clutter=True),
    "views-17": views,
}


def flat(codes: np.ndarray) -> torch.Tensor:
    """Codes (n, I, M) as features (n, d)."""
    return torch.from_numpy(codes).flatten(1)


class Trial:
    """The codes and gate targets of a trial, which all variants share."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        network = self.network(preset("small"))
        self.codes = codes_in_memory(network, setting.train.pixels)
        self.test_codes = {name: codes_in_memory(network, images.pixels) for name, images in setting.tests.items()}
        training = Training(network, ArrayDataset(setting.train.pixels), lambda: self.codes)
        groups = SpectralTargets().find(training)
        assert groups is not None
        self.targets = KnownTargets(groups)

    def network(self, config: Config, control: str | None = None) -> Network:
        """Untrained capsules above the trial's codec."""
        if control is not None:
            return Network(self.setting.codec, [controlled_layer(config, self.setting.codec.capsules, control)])
        return Network(self.setting.codec, build_layers(config, self.setting.codec.capsules))

    def measure(self, config: Config, control: str | None) -> dict[str, Any]:
        """Train one variant and score it."""
        network = self.network(config, control)
        stage = capsule_stage(config, network, 0)
        stage.targets = self.targets
        fit(network, None, [stage], codes=self.codes)
        return self.scores(network)

    def probe_of_codes(self) -> dict[str, Any]:
        """The accuracy of ridge regression from the codes."""
        probe = RidgeProbe(flat(self.codes), torch.from_numpy(self.setting.train.labels))
        scores = {}
        for name, codes in self.test_codes.items():
            accuracy = probe.accuracy(flat(codes), torch.from_numpy(self.setting.tests[name].labels))
            scores[name] = rounded({"probe": accuracy})
        return scores

    def scores(self, network: Network) -> dict[str, Any]:
        J = network.top.upper[0]
        labels = self.setting.train.labels
        classes = int(labels.max()) + 1
        train = encode_codes(network, self.codes)
        probe = RidgeProbe(flat_poses(train), torch.from_numpy(labels))
        names = most_common_labels(train.on.argmax(1), labels, J)
        scores = {}
        for name, codes in self.test_codes.items():
            truth = self.setting.tests[name].labels
            test = encode_codes(network, codes)
            winner = test.on.argmax(1)
            scores[name] = rounded(
                {
                    "purity": float(clustering_scores(winner, truth, J, classes)["purity"]),
                    "gate": float((names[winner] == truth).mean()),
                    "probe": probe.accuracy(flat_poses(test), torch.from_numpy(truth)),
                }
            )
        return scores


class Measurement:
    """The settings of a record, and the trials that need rows."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.trials: dict[str, Trial] = {}

    def run(self, name: str, seed: int) -> None:
        """Add the rows of a trial and seed that are missing."""
        codes = {"trial": name, "variant": CODES}
        records.add_row(RECORD, codes, lambda: self.trial(name).probe_of_codes(), DEPENDS)
        for variant, (settings, control) in VARIANTS.items():
            key = {"trial": name, "variant": variant, "seed": seed, "epochs": self.epochs}
            config = preset("small").replace(epochs=self.epochs, min_steps=0, seed=seed, **CD, **settings)
            records.add_row(RECORD, key, partial(self.measure, name, config, control), DEPENDS)

    def measure(self, name: str, config: Config, control: str | None) -> dict[str, Any]:
        """Train one variant in a trial and score it."""
        trial = self.trial(name)
        return trial.measure(config.replace(learning_rate=trial.setting.learning_rate), control)

    def trial(self, name: str) -> Trial:
        if name not in self.trials:
            self.trials[name] = Trial(TRIALS[name]())
        return self.trials[name]


def summary(rows: Sequence[dict[str, Any]], score: str) -> str:
    """A table of one score on every test set: means and half ranges across seeds."""
    lines = []
    for name in dict.fromkeys(row["trial"] for row in rows):
        own = [row for row in rows if row["trial"] == name]
        tests = list(dict.fromkeys(key for row in own for key, value in row.items() if isinstance(value, dict)))
        lines += ["", f"| {name}, {score} | seeds | " + " | ".join(tests) + " |", "|---|---|" + "---|" * len(tests)]
        for variant in dict.fromkeys(row["variant"] for row in own):
            seeds = [row for row in own if row["variant"] == variant]
            finished = [row for row in seeds if "diverged" not in row]
            if not finished:
                lines.append(f"| {variant} | {len(seeds)} |" + " diverged |" * len(tests))
            elif score in finished[0][tests[0]]:  # codes have a probe only
                cells = [cell([row[test][score] for row in finished]) for test in tests]
                lines.append(f"| {variant} | {len(finished)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(numbers: Sequence[float]) -> str:
    values = mean_and_range(numbers)
    return f"{values['mean']:.3f} ± {values['half_range']:.3f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trials", nargs="*", metavar="TRIAL", default=list(TRIALS), help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6, help="of the capsules, on 20,000 images")
    options = parser.parse_args(arguments)
    measurement = Measurement(options.epochs)
    for seed in range(options.seeds):
        for name in options.trials:
            measurement.run(name, seed)
    for score in ("probe", "gate", "purity"):
        print(summary(records.read(RECORD, default=[]), score))


if __name__ == "__main__":
    main()
