"""The capsules one by one: the mean pose decoded, images for which each is on, and their labels."""

from typing import Literal, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from capspoe.data import CATALOGUE, Dataset
from capspoe.figures.sheet import Row, draw_rows
from capspoe.infer.traverse import decode_poses
from capspoe.model.network import Encoded, Network

SMALLEST_SHARE = 0.005  # labels of fewer of a capsule's images would print as 0%


class Gallery(NamedTuple):
    mean: np.ndarray  # (J, H, W, C): each capsule's mean pose decoded
    images: list[np.ndarray]  # J of (n, H, W, C): the first images for which it is most probable
    share: np.ndarray  # (J,): share of the images for which it is most probable
    label_share: np.ndarray | None  # (J, labels): their shares among a capsule's images, or 0
    classes: tuple[str, ...]  # names of the labels that occur

    @property
    def purity(self) -> float | None:
        """The share of images that have the most common label of their capsule."""
        if self.label_share is None:
            return None
        return float((self.share * self.label_share.max(-1)).sum())


def shown_split(data: str) -> Literal["all", "test"]:
    """The images that pages show: all of somebody's own, the test images of a named data set."""
    return "test" if data in CATALOGUE else "all"


def label_name(dataset: Dataset, label: int) -> str:
    if dataset.classes:
        return dataset.classes[label]
    return str(label)


def label_of(dataset: Dataset, number: int) -> str | None:
    """The label of image `number`, if there are labels."""
    if dataset.labels is None:
        return None
    return label_name(dataset, int(dataset.labels[number]))


def gallery(model: Network, dataset: Dataset, encoded: Encoded, count: int = 8) -> Gallery:
    """`encoded` are the first images of the data set; at most `count` are shown of each capsule."""
    J = model.top.upper[0]
    on = encoded.on.argmax(-1)
    images = []
    means = []
    for j in range(J):
        first = np.flatnonzero(on == j)[:count]
        images.append(dataset.batch(first) / 255)
        means.append(decode_poses(model, j, model.prior.centre[j][None]))
    mean = np.concatenate(means)
    share = np.bincount(on, minlength=J) / len(on)
    if dataset.labels is None:
        return Gallery(mean, images, share, None, ())
    # How many images of each label each capsule is on for.
    labels, column = np.unique(dataset.labels[: len(on)], return_inverse=True)
    table = np.bincount(on * len(labels) + column, minlength=J * len(labels)).reshape(J, -1)
    label_share = table / np.maximum(table.sum(-1, keepdims=True), 1)
    classes = tuple(label_name(dataset, label) for label in labels)
    return Gallery(mean, images, share, label_share, classes)


def most_common(capsules: Gallery, capsule: int, count: int = 2) -> list[tuple[str, float]]:
    """The most common labels of a capsule's images, with their shares."""
    if capsules.label_share is None:
        return []
    share = capsules.label_share[capsule]
    order = np.argsort(-share, kind="stable")[:count]
    return [(capsules.classes[k], float(share[k])) for k in order if share[k] >= SMALLEST_SHARE]


def gallery_rows(capsules: Gallery) -> list[Row]:
    rows = []
    for j, share in enumerate(capsules.share):
        labels = ", ".join(f"{name}: {100 * s:.0f}%" for name, s in most_common(capsules, j))
        groups = [capsules.mean[j : j + 1], capsules.images[j]]
        detail = f"{100 * share:.1f}% of images"
        rows.append(Row(f"capsule {j}", groups, remark=labels, detail=detail))
    return rows


def draw_gallery(capsules: Gallery) -> Figure:
    """A row for each capsule."""
    words = "the mean pose decoded, then the first images for which the capsule is on"
    return draw_rows("The capsules one by one", words, gallery_rows(capsules), 56)
