"""The search: proposals, selection, refinement."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import InputError
from capspoe.infer.explain.compose import MAXIMUM, Composition
from capspoe.infer.explain.decoders import Decoders
from capspoe.infer.explain.objective import Objective, misfit, part_of
from capspoe.infer.explain.settings import DEFAULT, Ascent, Decode, Search
from capspoe.model.noise import Noise
from capspoe.model.recognition import Recognised


class Sets(NamedTuple):
    """For each of B images s sets of k capsules, with their poses, what these decode to, and the objective."""

    capsule: Int[Tensor, "B s k"]
    pose: Float[Tensor, "B s k N"]
    objects: Float[Tensor, "B s k C H W"]
    objective: Float[Tensor, "B s"]

    def take(self, index: Int[Tensor, "B t"]) -> "Sets":
        """Some sets of each image, by number."""
        rows = torch.arange(len(index), device=index.device)[:, None]
        return Sets(*(values[rows, index] for values in self))

    def first(self, count: int) -> "Sets":
        return Sets(*(values[:, :count] for values in self))

    def best_first(self) -> "Sets":
        """By falling objective; sets with the same capsules in the same order as a better one come last."""
        same = (self.capsule[:, :, None] == self.capsule[:, None]).all(-1)
        better = self.objective[:, :, None] < self.objective[:, None]
        repeated = (same & better).any(-1)
        by_objective = self.objective.argsort(1, descending=True)
        repeated_last = repeated.gather(1, by_objective).int().argsort(dim=1, stable=True)
        return self.take(by_objective.gather(1, repeated_last))


def last(steps: Iterator[Sets]) -> Sets:
    """The last of several steps."""
    return deque(steps, maxlen=1)[0]


def search_steps(
    decoders: Decoders,
    images: Float[Tensor, "B C H W"],
    k: int,
    composition: Composition = MAXIMUM,
    search: Search = DEFAULT,
    recognised: Recognised | None = None,
) -> Iterator[Sets]:
    """Explain images by k capsules each; yields every step of the selection and the refinement, the best sets first.

    Parameters
    ----------
    decoders : of the capsules, or of a model in their place
    images : with light ink, like the decoders'
    k : number of objects in each image
    composition : how objects make up an image
    search : weights and effort
    recognised : what a recognition network says of the images
    """
    most = min(search.max_objects, decoders.shape[0])
    if k > most:
        raise InputError(f"k must be at most {most}, not {k}")
    if search.shift:
        decoders = decoders.shifted(search.shift)
    objective = Objective(images, composition, search.for_objects(k), recognised)

    proposals = propose(decoders, objective)
    sets = select(proposals, k, objective)
    stages = (
        (decoders.linear, search.selected_sets, search.selection),
        (decoders.exact, search.refined_sets, search.refinement),
    )
    for decode, count, ascent in stages:
        for step in fit_together(decode, sets.first(count), objective, ascent):
            yield step
        sets = step


# Step 1: proposals.


def best_draws(
    decode: Decode, shape: tuple[int, int], images: Float[Tensor, "B C H W"], search: Search = DEFAULT
) -> Float[Tensor, "B J s N"]:
    """Poses to start from: each capsule's mean, and those of its draws that explain a part of the image best."""
    J, N = shape
    draws = Noise.for_batch(J * search.draws).normal(0, N).to(images)
    capsules = torch.arange(J, device=images.device)
    decoded = decode(capsules.repeat_interleave(search.draws), draws)
    likelihood = torch.stack([part_of(decoded, image, search) for image in images])
    value = likelihood - search.pose_weight * draws.square().sum(-1)
    best = value.view(len(images), J, search.draws).topk(search.starts - 1, -1).indices
    drawn = draws.view(J, search.draws, N)[capsules[:, None], best]
    mean = drawn.new_zeros(len(images), J, 1, N)
    return torch.cat([mean, search.draw_scale * drawn], 2)


def propose(decoders: Decoders, objective: Objective) -> Sets:
    """Fit each capsule alone to a part of each image, from several starts; the sets have one capsule each."""
    images = objective.images
    search = objective.search
    if search.start is None:
        start_BJsN = best_draws(decoders.linear, decoders.shape, images, search)
    else:
        start_BJsN = search.start(decoders.linear, decoders.shape, images)
    _, J, starts, _ = start_BJsN.shape
    capsule = torch.arange(J, device=images.device).repeat_interleave(starts)
    capsule = capsule.expand(len(images), -1)[:, :, None]
    pose = start_BJsN.flatten(1, 2)[:, :, None]
    return last(fit(decoders.linear, capsule, pose, objective.part, search.proposal, search.pose_weight))


# Step 2: selection.


def select(proposals: Sets, k: int, objective: Objective) -> Sets:
    """The sets of k proposals of different capsules that, composed as they are, explain each image best."""
    composition = objective.composition
    search = objective.search

    # Keep as many of the best proposals as can be composed in every way, but enough for k different capsules.
    starts = int(proposals.capsule[0].flatten().bincount().max())
    enough = (k - 1) * starts + 1
    count = max(composition.most_objects(k, search.max_composed), enough)
    count = min(count, proposals.pose.shape[1])
    value = proposals.objective + objective.support(proposals.capsule)
    proposals = proposals.take(value.topk(count, 1).indices)
    arrangement_Ak = torch.tensor(list(composition.arrangements(count, k)), device=value.device)

    # Compose them, one image at a time to save memory.
    errors = []
    for objects, image in zip(proposals.objects[:, :, 0], objective.images, strict=True):
        composed = composition.compose(objects[arrangement_Ak])
        errors.append(misfit(composed, image, search))
    capsule = proposals.capsule[:, arrangement_Ak, 0]
    pose = proposals.pose[:, arrangement_Ak, 0]
    cost = torch.stack(errors) + objective.pose_cost(pose) - objective.support(capsule)

    # A capsule, started twice, may be there only once.
    repeated = (capsule.sort(-1).values.diff(dim=-1) == 0).any(-1)
    different = int((~repeated).sum(1).min())
    cost = cost.masked_fill(repeated, torch.inf)
    chosen = cost.topk(min(search.selected_sets, different), 1, largest=False).indices

    rows = torch.arange(len(chosen), device=chosen.device)[:, None]
    objects = proposals.objects[rows[:, :, None], arrangement_Ak[chosen], 0]
    return Sets(capsule[rows, chosen], pose[rows, chosen], objects, -cost[rows, chosen])


# Step 3: refinement.


def fit_together(decode: Decode, sets: Sets, objective: Objective, ascent: Ascent) -> Iterator[Sets]:
    """Fit the poses of each set together to the whole image; yields every step, the best sets first."""
    support = objective.support(sets.capsule)

    def likelihood(objects: Float[Tensor, "B s k C H W"]) -> Float[Tensor, "B s"]:
        return support - objective.errors(objects)

    for step in fit(decode, sets.capsule, sets.pose, likelihood, ascent, objective.search.pose_weight):
        yield step.best_first()


def fit(
    decode: Decode,
    capsule: Int[Tensor, "B s k"],
    pose: Float[Tensor, "B s k N"],
    likelihood: Callable[[Float[Tensor, "B s k C H W"]], Float[Tensor, "B s"]],
    ascent: Ascent,
    pose_weight: float = Search.pose_weight,
) -> Iterator[Sets]:
    """Maximise likelihood(objects) - pose_weight |v|^2 over the poses v; yields the start and every step.

    The sets are independent problems: the gradient of their sum is theirs.
    """
    pose = pose.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([pose], betas=ascent.betas, maximize=True)
    for step in range(ascent.steps + 1):
        with torch.enable_grad():
            objects = decode(capsule.flatten(), pose.flatten(0, 2)).unflatten(0, capsule.shape)
            objective = likelihood(objects) - pose_weight * pose.square().sum((2, 3))
            total = objective.sum()
        yield Sets(capsule, pose.detach().clone(), objects.detach(), objective.detach())
        if step < ascent.steps:
            optimizer.param_groups[0]["lr"] = ascent.rate_at(step)
            (pose.grad,) = torch.autograd.grad(total, pose)
            optimizer.step()
