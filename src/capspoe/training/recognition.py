"""The last stage: a recognition network learns to name the capsules of an image, without labels.

Training images, whose capsules the gate's targets say, are superposed; the network learns to name the capsules of all
of them. With one object it is an amortised gate. With several it helps the search of `explain`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional as F

from capspoe.data import Dataset, evenly_spaced, workers_for
from capspoe.errors import damaged
from capspoe.infer.explain import COMPOSITIONS, move
from capspoe.infer.polarity import Polarity
from capspoe.model.network import Network, centre_crop
from capspoe.model.recognition import Recognised, Recognition
from capspoe.training.codes import code_batch
from capspoe.training.optimizers import optimizer_tensors, restore_optimizer, set_learning_rate
from capspoe.training.stage import Stage, Step, Training
from capspoe.training.targets import TargetFinder, gate_targets

STREAM = 3  # of the scenes
BATCH = 128  # scenes in a step
MAX_EPOCHS = 100  # more would teach little: a thousand images take 782 steps
RATE = 3e-3
WARMUP = 0.05  # fraction of the steps in which the rate rises
WEIGHT_DECAY = 1e-4
MAX_IMAGES = 60_000  # that scenes are made of, evenly spaced
MAX_BYTES = 1 << 30  # of these images

OBJECTS = (1, 1, 2, 2, 3)  # in a scene, equally often
COMPOSED = ("maximum", "maximum", "sum", "occlusion")  # equally often; all scenes of a batch alike
MOVED = 0.4  # fraction of the scenes whose objects are moved
ERASED = 0.4  # fraction of the scenes of one object from which a rectangle is erased
SIDES = (0.2, 1.0)  # of the rectangle, as fractions of the image's sides
SHORTER = 0.45  # factor on one of its sides


@dataclass
class RecognitionStage(Stage):
    """Gradient descent on the negative pseudo-log-likelihood of the capsules in a scene.

    Every process does every step, on the same scenes.

    Parameters
    ----------
    count : number of steps; fewer if these are more than MAX_EPOCHS passes over the images
    seed : of the initial weights and the scenes
    targets : finds the capsule of every training image; None takes the energy's most probable one
    shift : pixels by which the objects of some scenes are moved, at most
    """

    count: int = 2000
    seed: int = 0
    targets: TargetFinder | None = None
    shift: float = 2.5

    name = "recognition"
    title = "3 recognition"
    shown = ("loss",)

    def steps(self, count: int) -> int:
        return min(self.count, -(-MAX_EPOCHS * count // BATCH))

    def begin(self, training: Training, first: int, state: dict[str, Tensor]) -> None:
        network = training.network
        if training.images is None:
            raise ValueError("the recognition network needs images")
        polarity = Polarity.of_network(network)
        self._images, rows = images_in_memory(training.images, network, polarity)
        self._on = F.one_hot(self._capsules(training)[rows], network.top.upper[0]).float()
        if first == 0:
            network.recognition = self._new(network, polarity)
        if network.recognition is None:
            raise damaged("the checkpoint has no recognition network")
        network.recognition.requires_grad_(True)
        self._descent = torch.optim.AdamW(network.recognition.parameters(), RATE, weight_decay=WEIGHT_DECAY)
        restore_optimizer(self._descent, state)

    def state(self) -> dict[str, Tensor]:
        return optimizer_tensors(self._descent)

    def run(self, training: Training, first: int, last: int) -> Iterator[Step]:
        network = training.network
        recognition = network.recognition
        assert recognition is not None
        for step in range(first, last):
            seed = np.random.SeedSequence([self.seed % 2**64, STREAM, step]).generate_state(1, np.uint64)
            random = torch.Generator().manual_seed(int(seed[0] >> 1))
            batch = scenes(self._images, self._on, random, shift=self.shift)
            done = step / last
            set_learning_rate(self._descent, RATE * min((done + 1 / last) / WARMUP, (1 - done) / (1 - WARMUP)))
            recognised = recognition.train()(batch.images.to(network.device))
            loss = pseudo_loss(recognised, batch.on.to(network.device))
            self._descent.zero_grad()
            loss.backward()
            self._descent.step()
            recognition.eval()
            yield Step(step + 1, BATCH, {"loss": loss.item()})
        recognition.requires_grad_(False)

    def _new(self, network: Network, polarity: Polarity) -> Recognition:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            recognition = Recognition(network.image, network.top.upper[0])
        recognition.dark.fill_(float(polarity.dark))
        return recognition.to(network.device)

    def _capsules(self, training: Training) -> Int[Tensor, " n"]:
        """The capsule of every training image."""
        found = gate_targets(training, self.targets)
        if found is not None:
            return found.capsule.cpu().long()
        return energy_winners(training.network, training.codes)


def pseudo_loss(recognised: Recognised, on: Float[Tensor, "B J"]) -> Float[Tensor, ""]:
    """The negative pseudo-log-likelihood (Besag 1975) of which capsules are on, per capsule.

    Given all other capsules, j is on with log-odds l_j plus the couplings to those that are on: no log Z is needed.
    """
    return F.binary_cross_entropy_with_logits(recognised.log_odds + on @ recognised.couplings, on)


@torch.no_grad()
def energy_winners(network: Network, codes: np.ndarray) -> Int[Tensor, " n"]:
    """The most probable capsule of each code, by the energy."""
    winner = []
    for start in range(0, len(codes), 512):
        index = np.arange(start, min(start + 512, len(codes)))
        winner.append(network.up_from_code(code_batch(codes, index, network.device)).winner.cpu())
    return torch.cat(winner)


def images_in_memory(
    dataset: Dataset, network: Network, polarity: Polarity
) -> tuple[UInt8[Tensor, "m C H W"], Int[np.ndarray, " m"]]:
    """The images that scenes are made of, with light ink, and their places in the data set."""
    size = int(np.prod(dataset.shape))
    count = min(MAX_IMAGES, max(MAX_BYTES // size, 1))
    pixels = dataset.spread(count).images(workers_for(dataset)).pixels
    ink = polarity.ink(centre_crop(pixels, max(network.image[:2])))
    images = torch.from_numpy(np.ascontiguousarray(ink)).permute(0, 3, 1, 2)
    return images, evenly_spaced(len(dataset), count)


class Scenes(NamedTuple):
    """Several objects in each image, and the probability that each capsule is on for one of them."""

    images: Float[Tensor, "B C H W"]
    on: Float[Tensor, "B J"]


def scenes(
    images: UInt8[Tensor, "n C H W"],
    on: Float[Tensor, "n J"],
    random: torch.Generator,
    count: int = BATCH,
    shift: float = RecognitionStage.shift,
) -> Scenes:
    """Superpose one to three images; some are moved, and a part of some single ones is erased."""
    # Every scene draws as many images as the largest needs, and blackens those it does not use.
    choice = torch.randint(len(OBJECTS), (count,), generator=random)
    k = torch.tensor(OBJECTS)[choice]
    there = (torch.arange(max(OBJECTS)) < k[:, None]).float()
    index = torch.randint(len(images), there.shape, generator=random)
    objects = images[index] / 255 * there[:, :, None, None, None]

    objects = moved(objects, random, shift)
    composition = COMPOSITIONS[COMPOSED[int(torch.randint(len(COMPOSED), (), generator=random))]]
    scene = composition.compose(objects)
    rectangle = rectangles(count, images.shape[2:], random)
    erased = (k == 1) & (torch.rand(count, generator=random) < ERASED)
    scene = scene * ~(rectangle & erased[:, None, None])[:, None]
    return Scenes(scene, (on[index] * there[:, :, None]).amax(1))


def moved(objects: Float[Tensor, "B k C H W"], random: torch.Generator, shift: float) -> Float[Tensor, "B k C H W"]:
    """Move each object of some scenes by a distance of its own, up to `shift` pixels in each direction."""
    direction = 2 * torch.rand(*objects.shape[:2], 2, generator=random) - 1
    some = torch.rand(len(objects), 1, 1, generator=random) < MOVED
    pixels = shift * (direction * some)
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
