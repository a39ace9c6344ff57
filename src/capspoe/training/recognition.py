"""Train the recognition network of `explain` without labels.

Training images, whose capsules the gate knows, are superposed; the network learns to name the capsules.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from capspoe.infer.explain import COMPOSITIONS, move
from capspoe.infer.polarity import Polarity
from capspoe.model.network import Network, centre_crop
from capspoe.model.recognition import Recognition

STEPS = 6_000
BATCH = 128  # scenes in a step
RATE = 3e-3
WARMUP = 0.05  # fraction of the steps in which the rate rises
WEIGHT_DECAY = 1e-4

OBJECTS = (1, 2, 2, 3)  # in a scene, equally often
COMPOSED = ("maximum", "maximum", "sum", "occlusion")  # equally often; all scenes of a batch alike
MOVED = 0.4  # fraction of the scenes whose objects are moved
SHIFT = 2.5  # pixels by which they are moved, at most
ERASED = 0.6  # fraction of the scenes of one object from which a rectangle is erased
SIDES = (0.2, 1.0)  # of the rectangle, as fractions of the image's sides
SHORTER = 0.45  # factor on one of its sides


def recognition_steps(
    network: Network, pixels: UInt8[np.ndarray, "n H W C"], steps: int = STEPS, seed: int = 0
) -> Iterator[tuple[Recognition, float]]:
    """Train on scenes of images; yields the network and the loss after every step."""
    on = torch.from_numpy(network.encode(pixels).on)
    cropped = centre_crop(pixels, max(network.image[:2]))
    ink = Polarity.of_network(network).ink(cropped)  # as the search sees it
    images = torch.from_numpy(np.ascontiguousarray(ink)).permute(0, 3, 1, 2)

    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        recognition = Recognition(network.image, network.top.upper[0]).to(network.device)
    optimizer = torch.optim.AdamW(recognition.parameters(), RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=WARMUP, anneal_strategy="linear")
    for _ in range(steps):
        batch = scenes(images, on, random)
        log_odds = recognition.train()(batch.images.to(network.device))
        loss = F.binary_cross_entropy_with_logits(log_odds, batch.on.to(network.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield recognition.eval(), loss.item()


class Scenes(NamedTuple):
    """Several objects in each image, and the probability that each capsule is on for one of them."""

    images: Float[Tensor, "B C H W"]
    on: Float[Tensor, "B J"]


def scenes(
    images: UInt8[Tensor, "n C H W"], on: Float[Tensor, "n J"], random: torch.Generator, count: int = BATCH
) -> Scenes:
    """Superpose one to three images; some are moved, and a part of some single ones is erased."""
    # Every scene draws as many images as the largest needs, and blackens those it does not use.
    choice = torch.randint(len(OBJECTS), (count,), generator=random)
    k = torch.tensor(OBJECTS)[choice]
    there = (torch.arange(max(OBJECTS)) < k[:, None]).float()
    index = torch.randint(len(images), there.shape, generator=random)
    objects = images[index] / 255 * there[:, :, None, None, None]

    objects = moved(objects, random)
    composition = COMPOSITIONS[COMPOSED[int(torch.randint(len(COMPOSED), (), generator=random))]]
    scene = composition.compose(objects)
    rectangle = rectangles(count, images.shape[2:], random)
    erased = (k == 1) & (torch.rand(count, generator=random) < ERASED)
    scene = scene * ~(rectangle & erased[:, None, None])[:, None]
    return Scenes(scene, (on[index] * there[:, :, None]).amax(1))


def moved(objects: Float[Tensor, "B k C H W"], random: torch.Generator) -> Float[Tensor, "B k C H W"]:
    """Move each object of some scenes by a distance of its own."""
    direction = 2 * torch.rand(*objects.shape[:2], 2, generator=random) - 1
    some = torch.rand(len(objects), 1, 1, generator=random) < MOVED
    pixels = SHIFT * (direction * some)
    return move(objects.flatten(0, 1), pixels.flatten(0, 1)).unflatten(0, objects.shape[:2])


def rectangles(count: int, size: tuple[int, ...], random: torch.Generator) -> Bool[Tensor, "B H W"]:
    """A rectangle for each scene, long and narrow, anywhere in the image."""
    shortest, longest = SIDES
    side = shortest + (longest - shortest) * torch.rand(count, 2, generator=random)
    shorter = torch.randint(2, (count,), generator=random)
    side[torch.arange(count), shorter] *= SHORTER
    centre = torch.rand(count, 2, generator=random)
    height, width = size
    rows = covered(height, centre[:, 0], side[:, 0])
    columns = covered(width, centre[:, 1], side[:, 1])
    return rows[:, :, None] & columns[:, None]


def covered(length: int, centre: Float[Tensor, " B"], side: Float[Tensor, " B"]) -> Bool[Tensor, "B length"]:
    """Which pixels of a line an interval covers; centre and side are fractions of the line."""
    position = (torch.arange(length) + 0.5) / length
    return (position - centre[:, None]).abs() < side[:, None] / 2
