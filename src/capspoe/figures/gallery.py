"""The capsules one by one: what each paints at its mean, the images it claims, how often it is used."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from capspoe.data import Source
from capspoe.figures.panels import ACCENT, INK, QUIET, Sheet
from capspoe.figures.traversal import painted
from capspoe.model import CapsulePoE, Encoded


class Gallery(NamedTuple):
    mean: np.ndarray  # (J, H, W, C): what each capsule paints at the mean of its numbers
    # J of (at most `count`, H, W, C): the first images for which it is the most probable
    claimed: list[np.ndarray]
    share: np.ndarray  # (J,): share of the images that it claims
    label_share: np.ndarray | None  # (J, labels): how its images divide among the labels; rows sum to 1 or 0
    classes: tuple[str, ...]  # the names of the labels that occur


def label_name(source: Source, label: int) -> str:
    return source.classes[label] if source.classes else str(label)


def label_of(source: Source, number: int) -> str | None:
    """What image `number` of a source is labelled, if anything."""
    return None if source.labels is None else label_name(source, int(source.labels[number]))


@torch.no_grad()
def gallery(model: CapsulePoE, source: Source, encoded: Encoded, count: int = 8) -> Gallery:
    """`encoded` is what the model says of the first images of the source."""
    J = model.top.upper[0]
    on = encoded.on.argmax(-1)
    claimed = []
    for j in range(J):
        rows = np.flatnonzero(on == j)[:count]
        claimed.append(
            model.array(model.tensor(source.batch(rows))) if len(rows) else np.zeros((0, *model.image))
        )
    mean = np.concatenate([painted(model, j, model.prior.centre[j][None]) for j in range(J)])
    share = np.bincount(on, minlength=J) / len(on)
    if source.labels is None:
        return Gallery(mean, claimed, share, None, ())
    labels, column = np.unique(source.labels[: len(on)], return_inverse=True)
    table = np.zeros((J, len(labels)))
    np.add.at(table, (on, column), 1)
    label_share = table / np.maximum(table.sum(-1, keepdims=True), 1)
    return Gallery(mean, claimed, share, label_share, tuple(label_name(source, k) for k in labels))


def commonest(found: Gallery, capsule: int, count: int = 2) -> list[tuple[str, float]]:
    """The labels that most of a capsule's images bear, with their shares."""
    if found.label_share is None:
        return []
    order = np.argsort(-found.label_share[capsule], kind="stable")[:count]
    return [
        (found.classes[k], float(found.label_share[capsule, k]))
        for k in order
        if found.label_share[capsule, k]
    ]


def write_gallery(found: Gallery, path: Path) -> None:
    """A row a capsule, in two columns."""
    J, H, W, _ = found.mean.shape
    count = max((len(images) for images in found.claimed), default=0)
    scale = max(1, round(56 / max(H, W)))
    tile_x, pitch_y, top, left, head = W * scale + 4, H * scale + 12, 92, 20, 34
    bar, column = 110, 34 + (count + 1) * (W * scale + 4) + 24 + 150
    rows = -(-J // 2)
    sheet = Sheet(left + 2 * column + 30, top + rows * pitch_y + 12)
    sheet.text(left, 24, f"The {J} capsules", 18, weight="bold")
    words = "first what a capsule paints at the mean of its numbers, then the first images that it claims"
    sheet.text(left, 48, words, 12, QUIET)
    most = max(float(found.share.max()), 1e-9)
    for j in range(J):
        x, y = left + (j // rows) * (column + 30), top + (j % rows) * pitch_y
        middle = y + H * scale / 2
        sheet.text(x + 22, middle, str(j), 14, INK, ha="right", weight="bold")
        sheet.image(x + head, y, found.mean[j], scale)
        for k, image in enumerate(found.claimed[j]):
            sheet.image(x + head + 14 + (k + 1) * tile_x, y, image, scale)
        end = x + head + 14 + (count + 1) * tile_x + 10
        sheet.bar(end, middle - 14, bar * float(found.share[j]) / most, 6, "#5d6f85")
        sheet.text(end, middle + 2, f"{100 * found.share[j]:.1f} % of images", 11, QUIET)
        words = ", ".join(f"{name}: {100 * share:.0f} %" for name, share in commonest(found, j))
        sheet.text(end, middle + 19, words, 12, ACCENT, weight="bold")
    sheet.write(path)
