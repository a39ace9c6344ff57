"""Explanations of images by a network."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.infer.explain.compose import COMPOSITIONS, Composition
from capspoe.infer.explain.decoders import decoders_of, enlarge
from capspoe.infer.explain.search import Sets, last, search_steps
from capspoe.infer.explain.settings import DEFAULT, Search
from capspoe.infer.polarity import Polarity
from capspoe.model.checks import check_choice, check_count
from capspoe.model.network import Network

ABSENT = -1  # the capsule of an object that is not there


class Explanation(NamedTuple):
    """The objects found in n images, the brightest first (with "occlusion" the front one).

    capsule        (n, k); -1 where an image has fewer objects than others
    probability    (n, k): of the capsule, among all sets of capsules that were refined
    pose           (n, k, N): whitened, so that it is standard normal over the capsule's own images; where objects may
                   be moved, two more numbers say how far to the right and down, in units of shift / 2 pixels
    objects        (n, k, H, W, C): each object decoded alone
    owner          (n, k, H, W): how much each pixel belongs to each object; sums to 1
    image          (n, H, W, C): the objects composed
    objective      (n,): of the best set
    """

    capsule: np.ndarray
    probability: np.ndarray
    pose: np.ndarray
    objects: np.ndarray
    owner: np.ndarray
    image: np.ndarray
    objective: np.ndarray

    @classmethod
    def of(cls, sets: Sets, composition: Composition, temperature: float = Search.temperature) -> "Explanation":
        """The first set of every image, which is the best."""
        capsule, pose, objects, objective = (values[:, 0] for values in sets)

        # A capsule is as probable as the sets that contain it.
        weight = torch.softmax(sets.objective / temperature, 1)
        contained = (sets.capsule[:, :, :, None] == capsule[:, None, None]).any(2)
        probability = (weight[:, :, None] * contained).sum(1)

        order = composition.order(objects)
        rows = torch.arange(len(order), device=order.device)[:, None]

        def listed(values: Tensor) -> np.ndarray:
            return values[rows, order].cpu().numpy()

        return cls(
            capsule=listed(capsule),
            probability=listed(probability),
            pose=listed(pose),
            objects=listed(objects.permute(0, 1, 3, 4, 2)),
            owner=listed(composition.responsibilities(objects)),
            image=composition.compose(objects).permute(0, 2, 3, 1).cpu().numpy(),
            objective=objective.cpu().numpy(),
        )

    def padded(self, k: int) -> "Explanation":
        """The same with room for k objects; those that are not there are 0."""
        missing = k - self.capsule.shape[1]

        def pad(values: np.ndarray, fill: int = 0) -> np.ndarray:
            widths = [(0, 0)] * values.ndim
            widths[1] = (0, missing)
            return np.pad(values, widths, constant_values=fill)

        return self._replace(
            capsule=pad(self.capsule, ABSENT),
            probability=pad(self.probability),
            pose=pad(self.pose),
            objects=pad(self.objects),
            owner=pad(self.owner),
        )

    def ink(self, polarity: Polarity) -> "Explanation":
        """The same with `polarity.ink` of the objects and the image."""
        return self._replace(objects=polarity.ink(self.objects), image=polarity.ink(self.image))

    @classmethod
    def concatenate(cls, parts: list["Explanation"]) -> "Explanation":
        """The explanations of several batches of images."""
        return cls(*(np.concatenate(values) for values in zip(*parts, strict=True)))

    def take(self, index: Int[np.ndarray, " m"]) -> "Explanation":
        """Those of some of the images, by number."""
        return Explanation(*(values[index] for values in self))

    @classmethod
    def choose(cls, candidates: list["Explanation"], index: np.ndarray) -> "Explanation":
        """For each image the candidate of this number (n,)."""
        images = np.arange(len(index))
        return cls(*(np.stack(values)[index, images] for values in zip(*candidates, strict=True)))


def explain_steps(
    network: Network,
    images: Float[Tensor, "B C H W"],
    k: int,
    composition: Composition,
    search: Search = DEFAULT,
) -> Iterator[Sets]:
    """The steps of the search with a network's decoders and, if it has one, its recognition network.

    The objects that are yielded have light ink; see `Polarity`.
    """
    polarity = Polarity.of_network(network)
    ink = polarity.ink(images)
    decoders = decoders_of(network, search.logit_scale).then(polarity.ink)
    recognised = None if network.recognition is None else network.recognition(ink)
    return search_steps(decoders, ink, k, composition, search, recognised)


def explain(
    network: Network,
    images: Any,
    k: int | None = 2,
    compose: str = "maximum",
    search: Search = DEFAULT,
) -> Explanation:
    """Explain images by k objects each.

    Parameters
    ----------
    network : with images, not plain features
    images : as for `Network.encode`
    k : number of objects; None finds it for each image, up to `search.max_tried`: the most probable one to the
        recognition network, or without one the one of the best objective, where each object has a cost
    compose : "maximum" for strokes, "occlusion" for opaque objects, "sum" for light
    search : weights and effort of the search
    """
    check_choice("compose", compose, tuple(COMPOSITIONS))
    if k is not None:
        check_count("k", k)
    composition = COMPOSITIONS[compose]

    def by(count: int, batch: Tensor) -> Explanation:
        sets = last(explain_steps(network, batch, count, composition, search))
        return Explanation.of(sets, composition, search.temperature)

    most = min(search.max_tried, network.top.upper[0])
    parts = []
    for chunk in network.chunks(images):
        for batch in chunk.split(search.chunk_size):
            if k is not None:
                explanation = by(k, batch)
            elif network.recognition is not None:
                count = recognised_counts(network, batch, most, search.enlargements)
                explanation = by_recognised_counts(by, batch, count, most)
            else:
                explanation = by_best_counts(by, batch, most, search.object_cost)
            parts.append(explanation)
    return Explanation.concatenate(parts).ink(Polarity.of_network(network))


By = Callable[[int, Float[Tensor, "B C H W"]], Explanation]  # explains images by a number of objects


@torch.no_grad()
def recognised_counts(
    network: Network,
    images: Float[Tensor, "B C H W"],
    most: int,
    enlargements: tuple[float, ...] = DEFAULT.enlargements,
) -> Int[np.ndarray, " B"]:
    """The most probable number of objects of each image, by the recognition network, averaged over enlargements."""
    assert network.recognition is not None
    ink = Polarity.of_network(network).ink(images)
    probability = torch.zeros(len(ink), most, device=ink.device)
    for factor in enlargements:
        probability += network.recognition(enlarge(ink, factor)).count_probability(most)
    return probability.argmax(1).cpu().numpy() + 1


def by_recognised_counts(
    by: By, images: Float[Tensor, "B C H W"], count: Int[np.ndarray, " B"], most: int
) -> Explanation:
    """Explain each image by its number of objects."""
    parts = []
    order = []
    for number in np.unique(count):
        rows = np.flatnonzero(count == number)
        parts.append(by(int(number), images[torch.from_numpy(rows)]).padded(most))
        order.append(rows)
    return Explanation.concatenate(parts).take(np.concatenate(order).argsort())


def by_best_counts(by: By, images: Float[Tensor, "B C H W"], most: int, object_cost: float) -> Explanation:
    """Explain each image by the number of objects that has the best objective."""
    candidates = [by(count, images).padded(most) for count in range(1, most + 1)]
    cost = object_cost * np.arange(1, most + 1)
    value = np.stack([candidate.objective for candidate in candidates]) - cost[:, None]
    return Explanation.choose(candidates, value.argmax(0))
