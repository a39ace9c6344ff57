"""What pages say about capsules: their most common labels; size and reconstruction error of test images."""

import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capspoe.data import Dataset, open_for
from capspoe.data.drawings import object_size
from capspoe.errors import CapspoeError
from capspoe.figures.gallery import label_name
from capspoe.model.network import Network, Up
from capspoe.run.hub import SUMMARY
from capspoe.run.model import CapsulePoE

IMAGES = 2000  # test images that are measured
QUANTILE = 0.98  # an image reconstructed worse than this share of the test images is unlike them


class Summary(NamedTuple):
    labels: list[tuple[str, float] | None]  # the most common label of each capsule's images, and its share
    error: float | None = None  # QUANTILE of the reconstruction errors
    object_size: float | None = None  # for drawings, see the function of that name


def reconstruction_error(model: Network, x: Tensor, up: Up) -> np.ndarray:
    """The mean squared error of the pixels of images x (B, C, H, W) through their capsules, (B,)."""
    return (model.down(up.state, up.c) - x).square().mean((1, 2, 3)).cpu().numpy()


def summary(J: int, dataset: Dataset, winner: np.ndarray, error: np.ndarray) -> Summary:
    """`winner` and `error` (n,) are those of the first images of the data set."""
    labels: list[tuple[str, float] | None] = [None] * J
    if dataset.labels is not None:
        for j in np.unique(winner).tolist():
            own = dataset.labels[: len(winner)][winner == j]
            values, counts = np.unique(own, return_counts=True)
            most = counts.argmax()
            labels[j] = (label_name(dataset, int(values[most])), float(counts[most] / len(own)))
    size = object_size(dataset.batch(np.arange(min(200, len(dataset)))))
    return Summary(labels, float(np.quantile(error, QUANTILE)), size)


@torch.no_grad()
def summary_of(model: CapsulePoE, run: Path, count: int = IMAGES) -> Summary:
    """From the run's summary.json or its first `count` test images; empty without either."""
    if stored := read_summary(run, model.top.upper[0]):
        return stored
    J = model.top.upper[0]
    winners = []
    errors = []
    with suppress(CapspoeError, OSError):
        dataset = open_for(model.config, model.image)
        images = dataset.batch(np.arange(min(count, len(dataset))))
        for x in model.chunks(images):
            up = model.up(x)
            winners.append(up.winner.cpu().numpy())
            errors.append(reconstruction_error(model, x, up))
        return summary(J, dataset, np.concatenate(winners), np.concatenate(errors))
    return Summary([None] * J)


def read_summary(folder: Path, J: int) -> Summary | None:
    """What summary.json says, if it fits."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        stored = json.loads((folder / SUMMARY).read_bytes())
        labels: list[tuple[str, float] | None] = []
        for label in stored["labels"]:
            labels.append(None if label is None else (str(label[0]), float(label[1])))
        if len(labels) == J:
            size = stored["object_size"]
            if size is not None:
                size = float(size)
            return Summary(labels, float(stored["error"]), size)
    return None
