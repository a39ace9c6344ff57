"""What the baselines are given: the run's network, its images and their codes."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike

from capspoe.codes import code_batch
from capspoe.data import Images, Source
from capspoe.data.images import even_choice
from capspoe.encoding import open_for
from capspoe.errors import DataError
from capspoe.evaluate.features import Told
from capspoe.model import CapsulePoE
from capspoe.stages import decoders

CHUNK = 512
MOST_IMAGES = 60_000  # of each part, so that a large data set takes neither hours nor all the memory
LEAST_TRAINING = 20  # images, below which scores say nothing
LEAST_TEST = 10  # images: twice the neighbours that precision and recall look at
MOST_CLASSES = 10_000  # every class up to the highest label takes memory, whether it has images or not

Features = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of (pixels, codes), (n, d)


class Made(NamedTuple):
    """What a model, ours or a baseline, gives to be scored. What it cannot give is None."""

    images: np.ndarray  # (n, H, W, C) samples
    groups: int = 0  # capsules, clusters or components
    winner: np.ndarray | None = None  # (test images,) the group of each
    features: Features | None = None  # for the probe


class Material:
    """Images and codes of a run, computed when first asked for: of a large data set an even choice."""

    def __init__(self, model: CapsulePoE, samples: int, seed: int, told: Told | None = None) -> None:
        self.model, self.samples, self.seed, self.told = model, samples, seed, told

    @cached_property
    def train_source(self) -> Source:
        """The images that the run was trained on."""
        source, limit = open_for(self.model, None, "train"), self.model.config.data.limit
        return source if limit is None else source.first(limit)

    @cached_property
    def test_source(self) -> Source:
        return open_for(self.model, None, "test")

    @cached_property
    def labelled(self) -> bool:
        """Whether there are classes to tell apart."""
        labels = (self.train_source.labels, self.test_source.labels)
        return all(some is not None and len(np.unique(some)) > 1 for some in labels)

    def check_enough(self) -> None:
        """Refuse data of which the scores would say nothing, or not exist."""
        J = self.model.top.upper[0]
        for kind, source, least in (
            ("training", self.train_source, max(LEAST_TRAINING, J)),
            ("test", self.test_source, LEAST_TEST),
        ):
            if len(source) < least:
                raise DataError(
                    f"{len(source)} {kind} images are too few to score {J} capsules by; it takes {least} or more"
                )
            if source.labels is not None and source.labels.max() >= MOST_CLASSES:
                raise DataError(
                    f"labels up to {source.labels.max()}: an evaluation takes those below {MOST_CLASSES}; "
                    "number the classes 0, 1, 2, ..."
                )

    @cached_property
    def train(self) -> Images:
        return in_memory(self.train_source)

    @cached_property
    def test(self) -> Images:
        return in_memory(self.test_source)

    @property
    def train_pixels(self) -> np.ndarray:
        return self.train.pixels

    @property
    def train_labels(self) -> np.ndarray | None:
        return self.train.labels

    @property
    def test_pixels(self) -> np.ndarray:
        return self.test.pixels

    @property
    def test_labels(self) -> np.ndarray | None:
        return self.test.labels

    @cached_property
    def train_codes(self) -> np.ndarray:
        return codes_of(self.model, self.train_pixels)

    @cached_property
    def test_codes(self) -> np.ndarray:
        return codes_of(self.model, self.test_pixels)

    def flat_codes(self, count: int) -> np.ndarray:
        """An even choice of the training codes, (count, I M) float32."""
        return flat(self.train_codes[even_choice(len(self.train_codes), count)])

    def paint(self, codes: np.ndarray) -> np.ndarray:
        """Images of codes (n, I M), which are cut to [0, 1] as the decoder expects them."""
        return paint(self.model, np.clip(codes, 0, 1))


def in_memory(source: Source) -> Images:
    """The images of a source, or an even choice of MOST_IMAGES of them."""
    return source.some(MOST_IMAGES).images(decoders(source))


def flat(codes: np.ndarray) -> np.ndarray:
    return codes.reshape(len(codes), -1).astype(np.float32)


@torch.no_grad()
def codes_of(model: CapsulePoE, pixels: np.ndarray, dtype: DTypeLike = np.float16) -> np.ndarray:
    """Codes (n, I, M), by default in float16, as training keeps them."""
    codes = np.empty((len(pixels), *model.autoencoder.capsules), dtype)
    for start in range(0, len(pixels), CHUNK):
        x = model.tensor(pixels[start : start + CHUNK])
        codes[start : start + CHUNK] = model.autoencoder.encode(x).cpu().numpy()
    return codes


@torch.no_grad()
def paint(model: CapsulePoE, codes: np.ndarray) -> np.ndarray:
    parts = []
    for start in range(0, len(codes), CHUNK):
        x = torch.from_numpy(np.ascontiguousarray(codes[start : start + CHUNK], np.float32))
        x = x.reshape(-1, *model.autoencoder.capsules).to(model.device)
        parts.append(model.array(model.autoencoder.decode(x)))
    return np.concatenate(parts)


@torch.no_grad()
def hidden_of(model: CapsulePoE, codes: np.ndarray, gated: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(the winning capsule (n,), all hidden numbers (n, J N)) of codes.

    The numbers are each capsule's mean given that it is on; `gated` multiplies them by P(on), which is the
    mean of h under the gate.
    """
    winner, hidden = [], []
    for start in range(0, len(codes), CHUNK):
        index = np.arange(start, min(start + CHUNK, len(codes)))
        z = model.top(model.lift(code_batch(codes, index, model.device))).z
        on, mean = model.top.on_given_visible(z), model.top.hidden_given_visible(z)
        winner.append(on.argmax(-1).cpu().numpy())
        hidden.append((mean * on[..., None] if gated else mean).flatten(1).cpu().numpy())
    return np.concatenate(winner), np.concatenate(hidden)
