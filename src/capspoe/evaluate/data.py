"""What models are evaluated on: images, codes, and the feature net in which images are compared."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch

from capspoe.data import Dataset, evenly_spaced, open_for, workers_for
from capspoe.errors import DataError
from capspoe.evaluate.clustering import clustering_scores
from capspoe.evaluate.features import FeatureNet, Labelled, feature_net
from capspoe.evaluate.generation import NEIGHBOURS, scores_of_sets
from capspoe.evaluate.grid import grid
from capspoe.model.network import Encoded, Network
from capspoe.run.model import CapsulePoE
from capspoe.training.codes import code_batch, codes_in_memory

CHUNK = 512
MAX_IMAGES = 60_000  # of each split, evenly spaced, to bound time and memory
MIN_TRAIN = 20  # images
MIN_TEST = 10  # images, twice the neighbours of precision and recall
MAX_CLASSES = 10_000  # every class up to the largest label takes memory


class Split(NamedTuple):
    """Images, labels (all 0 without labels) and codes."""

    pixels: np.ndarray
    labels: np.ndarray
    codes: np.ndarray

    def spread(self, count: int) -> "Split":
        """At most `count` evenly spaced images."""
        rows = evenly_spaced(len(self.pixels), count)
        return Split(self.pixels[rows], self.labels[rows], self.codes[rows])


class Output(NamedTuple):
    """What a model produces to be scored; None for what it cannot."""

    images: np.ndarray  # (n, H, W, C) samples
    winner: np.ndarray | None = None  # the capsule, cluster or component of each test image
    features: Callable[[Split], np.ndarray] | None = None  # (n, d), for the linear probe


class EvaluationData:
    """The images of a run and their codes.

    Test images are also the reference set that samples are compared with.

    Parameters
    ----------
    network : the network of the run
    samples : images that each model generates, in all
    seed : of the samples
    sets : the samples are scored in this many sets
    """

    def __init__(self, network: CapsulePoE, samples: int = 2000, seed: int = 0, sets: int = 1) -> None:
        self.network = network
        self.samples = samples
        self.seed = seed
        self.sets = sets
        c = network.config
        J = network.top.upper[0]
        self.all_train = open_for(c, network.image, split="train")
        self.test_set = open_for(c, network.image, split="test")
        self.train_set = self.all_train
        if c.limit is not None:
            self.train_set = self.all_train.first(c.limit)
        check_size(self.train_set, "training", max(MIN_TRAIN, J), J)
        check_size(self.test_set, "test", MIN_TEST, J)
        # Scores that compare with labels need at least two of them, in every set.
        datasets = (self.train_set, self.test_set, self.all_train)
        labels_by_set = [distinct_labels(dataset) for dataset in datasets]
        self.labelled = all(len(labels) > 1 for labels in labels_by_set)
        self.classes = int(max(labels[-1] for labels in labels_by_set)) + 1
        if self.classes > MAX_CLASSES:
            raise DataError(f"labels go up to {self.classes - 1}; number the classes 0, 1, 2, ...")

    @cached_property
    def train(self) -> Split:
        return self.load(self.train_set)

    @cached_property
    def test(self) -> Split:
        return self.load(self.test_set)

    def load(self, dataset: Dataset) -> Split:
        pixels, labels = in_memory(dataset)
        return Split(pixels, labels, codes_in_memory(self.network, pixels))

    @torch.no_grad()
    def decode(self, codes: np.ndarray) -> np.ndarray:
        """Images of codes (n, I M), clipped to [0, 1]."""
        x = torch.from_numpy(np.clip(codes, 0, 1).astype(np.float32)).to(self.network.device)
        parts = x.reshape(-1, *self.network.codec.capsules).split(CHUNK)
        return np.concatenate([self.network.array(self.network.codec.decode(part)) for part in parts])

    @cached_property
    def net(self) -> FeatureNet:
        """Trained on all training images of the data set, even if the run had only some."""
        return feature_net(self.network.config.data, in_memory(self.all_train), self.test[:2])

    @cached_property
    def real(self) -> np.ndarray:
        """Features of the test images."""
        return self.net.see(self.test.pixels)[0]

    def generation(self, images: np.ndarray, neighbours: int = NEIGHBOURS) -> dict[str, float]:
        """Scores of generated images: in the feature net, and of their grid."""
        # Fewer training images than samples make fewer sets, of about the same size.
        sets = max(1, self.sets * len(images) // self.samples)
        scores = scores_of_sets(self.real, self.net.see(images)[0], sets, neighbours)
        return scores | {"grid": grid(images)}

    def clustering(self, winner: np.ndarray) -> dict[str, float | int]:
        return clustering_scores(winner, self.test.labels, self.network.top.upper[0], self.classes)


def check_size(dataset: Dataset, name: str, minimum: int, J: int) -> None:
    if len(dataset) < minimum:
        few = f"{len(dataset)} {name} images are too few for {J} capsules"
        raise DataError(f"{few}; give {minimum} or more")


def distinct_labels(dataset: Dataset) -> np.ndarray:
    """The labels that occur, ascending; 0 alone without labels."""
    if dataset.labels is None:
        return np.array([0])
    return np.unique(dataset.labels)


def in_memory(dataset: Dataset, count: int = MAX_IMAGES) -> Labelled:
    pixels, labels = dataset.spread(count).images(workers_for(dataset))
    if labels is None:
        labels = np.zeros(len(pixels), np.int64)
    return pixels, labels


@torch.no_grad()
def encode_codes(network: Network, codes: np.ndarray) -> Encoded:
    """P(on) (n, J) by the energy, and poses (n, J, N), of codes (n, I, M)."""
    on = []
    hidden = []
    for rows in np.array_split(np.arange(len(codes)), -(-len(codes) // CHUNK)):
        up = network.up_from_code(code_batch(codes, rows, network.device))
        on.append(up.on.cpu().numpy())
        hidden.append(up.hidden.cpu().numpy())
    return Encoded(np.concatenate(on), np.concatenate(hidden))
