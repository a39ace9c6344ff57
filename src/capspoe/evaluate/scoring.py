"""The images that a model is measured against, seen once by the feature net, and scores against them."""

from typing import Any

import numpy as np

from capspoe.data.images import even_choice
from capspoe.encoding import open_for
from capspoe.errors import InputError
from capspoe.evaluate.features import Labelled, Seen, Told, Trained, feature_net, see
from capspoe.evaluate.material import in_memory
from capspoe.evaluate.realism import NEIGHBOURS, fid, kid, realism
from capspoe.evaluate.specialise import specialisation
from capspoe.model import CapsulePoE


class Yardstick:
    """A labelled data set as a model takes it, its feature net, and what the net says of the test images."""

    def __init__(self, name: str, train: Labelled, test: Labelled, told: Told | None = None) -> None:
        self.name, self.train, self.test = name, train, test
        self.trained: Trained = feature_net(name, train, test, told=told)
        self.classes: int = self.trained.info["classes"]
        self.real: Seen = see(self.trained.net, test.pixels)

    def see(self, images: np.ndarray) -> Seen:
        return see(self.trained.net, images)

    def train_some(self, count: int) -> np.ndarray:
        """An even choice of the training images."""
        return self.train.pixels[even_choice(len(self.train.pixels), count)]

    def score(self, images: np.ndarray, neighbours: int = NEIGHBOURS) -> dict[str, float]:
        """FID against all test images; KID and the neighbour scores against as many as there are samples."""
        fake = self.see(images).features
        real = self.real.features[even_choice(len(self.real.features), len(fake))]
        return {
            "fid": fid(self.real.features, fake),
            "kid": kid(real, fake),
            **realism(real, fake, neighbours),
        }


def labelled(model: CapsulePoE, split: str, data: str | None = None) -> Labelled | None:
    """A part of the model's data, cut and coloured as the model takes it; None where it has no labels."""
    pixels, labels = in_memory(open_for(model, data, split))
    return None if labels is None else Labelled(pixels, labels)


def quick_scores(
    model: CapsulePoE, name: str | None = None, samples: int = 2000, seed: int = 0
) -> dict[str, Any]:
    """The scores to look at while a model is being improved, in seconds: for experiments, not for reports.

    They are taken on the model's own data, or on the data set `name`:

    fid, precision, recall   of the default sampling, and fid_standard and fid_gibbs100 of the others
    purity, nmi, alive       of the winning capsule on the test images
    fid_reconstruction       of training images through the capsules and back
    """
    yardstick = yardstick_for(model, name)
    test = yardstick.test
    scores: dict[str, Any] = yardstick.score(model.sample(samples, seed=seed).images)
    options: dict[str, Any]
    for key, options in (("standard", {"prior": "standard"}), ("gibbs100", {"gibbs": 100})):
        images = model.sample(samples, seed=seed, **options).images
        scores[f"fid_{key}"] = fid(yardstick.real.features, yardstick.see(images).features)
    winner = model.encode(test.pixels).on.argmax(1)
    scores |= specialisation(winner, test.labels, model.top.upper[0], yardstick.classes)
    some = yardstick.train_some(samples)
    scores["fid_reconstruction"] = fid(
        yardstick.real.features, yardstick.see(model.reconstruct(some)).features
    )
    return scores


_YARDSTICKS: dict[tuple[object, ...], Yardstick] = {}


def yardstick_for(model: CapsulePoE, name: str | None = None, told: Told | None = None) -> Yardstick:
    """One yardstick for a data set as models take it, by default their own, however many are compared."""
    c = model.config.data
    other = None if name == c.data else name  # its own images are prepared as they were for training
    key = (other or c.data, other is None and c.size, c.crop, c.skip_bad, model.image)
    if key not in _YARDSTICKS:
        train, test = labelled(model, "train", other), labelled(model, "test", other)
        if train is None or test is None:
            raise InputError(
                f"{key[0]} has no labels, and without them there is no feature net to compare in"
            )
        _YARDSTICKS[key] = Yardstick(other or c.data, train, test, told)
    return _YARDSTICKS[key]
