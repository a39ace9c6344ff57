"""Which group each image is in: all grouped anew, or new images put among those that are there."""

import numpy as np
import torch
from jaxtyping import Int
from threadpoolctl import threadpool_limits

from capspoe.sorting.features import Projection
from capspoe.sorting.grouping import (
    NEIGHBOURS,
    ODD,
    Fit,
    Graph,
    assign,
    fence,
    fit_of,
    group_nodes,
    neighbour_graph,
    numbered,
    usual_distance,
)
from capspoe.sorting.library import Groups, Library
from capspoe.sorting.settings import Progress, Settings
from capspoe.sorting.tree import ordered
from capspoe.training.spectral import nearest

FEW_IMAGES = 5000  # up to which one thread groups them


def set_of(group: Int[np.ndarray, " n"]) -> set[int]:
    """The numbers of the groups, without the odd ones."""
    return set(np.unique(group).tolist()) - {ODD}


def found_groups(library: Library, settings: Settings, before: Groups | None, progress: Progress) -> Groups:
    """Group all images; groups that are mostly the same as before keep their numbers."""
    # Threads that wait for each other cost more than they save: on a busy machine ten seconds for 1,000 images.
    with threadpool_limits(1 if len(library) < FEW_IMAGES else None):
        return _found_groups(library, settings, before, progress)


def _found_groups(library: Library, settings: Settings, before: Groups | None, progress: Progress) -> Groups:
    advance = progress.steps("grouping", 4)
    projection = Projection.fit(library.kind, library.small, library.photos, NEIGHBOURS, settings.seed)
    points = projection.points(library.small, library.photos)
    advance(1)
    graph = neighbour_graph(points)
    advance(2)
    group_of_node = group_nodes(points, graph, settings.groups, projection.separates, settings.seed, projection.noisy)
    advance(3)
    usual = usual_distance(graph)
    fit = fit_of(group_of_node, group_of_node[graph.near], graph.distance, usual[graph.near])
    farthest = fence(fit.distance)
    odd = fit.distance > farthest
    # A group must keep an image, so a group of odd images only is an ordinary one.
    for number in np.unique(group_of_node):
        members = group_of_node == number
        if odd[members].all():
            odd[members] = False
    group_of_node[odd] = ODD
    group = group_of_node[graph.node]
    inside = group != ODD
    group[inside] = numbered(group[inside])

    # Numbers follow the order of the page, unless a group had a number before.
    centres = np.stack([points[group == number].mean(0) for number in range(int(group.max()) + 1)])
    number = stable_numbers(library, group, ordered(centres)[0].tolist(), before)
    group[inside] = number[group[inside]]
    groups = Groups(
        names=library.names(),
        group=group,
        points=points,
        probability=probabilities(fit, odd, graph),
        usual=usual[graph.node],
        near=graph_rows(graph),
        projection=projection,
        farthest=farthest,
        wanted=settings.groups,
    )
    advance(4)
    return groups


def probabilities(fit: Fit, odd: np.ndarray, graph: Graph) -> np.ndarray:
    """The probability of each image's group; 0 for the odd ones."""
    return np.where(odd, 0.0, fit.probability)[graph.node]


def stable_numbers(
    library: Library, group: np.ndarray, order: list[int], before: Groups | None
) -> Int[np.ndarray, " J"]:
    """A number for each group: that of the old group with which it shares most images of both, or a new one."""
    number = np.full(len(order), -1)
    used: set[int] = set()
    free = 0
    if before is not None:
        free = int(before.group.max()) + 1
        old = dict(zip(before.names, before.group.tolist(), strict=True))
        old_group = np.array([old.get(name, ODD) for name in library.names()])
        overlaps = []
        for new in order:
            members = group == new
            for candidate in set_of(old_group[members]):
                both = np.sum(members & (old_group == candidate))
                either = np.sum(members | (old_group == candidate))
                overlaps.append((both / either, new, candidate))
        for share, new, candidate in sorted(overlaps, reverse=True):
            if share >= 1 / 3 and number[new] < 0 and candidate not in used:
                number[new] = candidate
                used.add(candidate)
    for new in order:
        if number[new] < 0:
            number[new] = free
            free += 1
    return number


def extend_groups(groups: Groups, library: Library, new: set[str]) -> None:
    """Remove images that are gone from the groups, and put each new image where most of its neighbours are."""
    names = library.names()
    row_of = {name: row for row, name in enumerate(groups.names) if name not in new}
    groups.keep(np.array([row_of[name] for name in names if name in row_of], np.int64))
    # What was read again is at the end of the library.
    added = np.arange(len(groups.names), len(names))
    if len(added):
        photos = None if library.photos is None else library.photos[added]
        points = groups.projection.points(library.small[added], photos)
        inside = np.flatnonzero(groups.group != ODD)
        assigned = assign(points, groups.points[inside], groups.group[inside], groups.usual[inside])
        odd = assigned.fit.distance > groups.farthest
        nearest_row = inside[assigned.nearest]
        groups.names += names[len(groups.names) :]
        groups.group = np.append(groups.group, np.where(odd, ODD, assigned.group))
        groups.probability = np.append(groups.probability, np.where(odd, 0.0, assigned.fit.probability))
        groups.usual = np.append(groups.usual, groups.usual[nearest_row])
        groups.points = np.concatenate([groups.points, points])
        groups.near = np.concatenate([groups.near, near_rows(points, groups.points)])


def near_rows(points: np.ndarray, others: np.ndarray) -> Int[np.ndarray, "n k"]:
    """The rows of the nearest of other images."""
    k = min(NEIGHBOURS + 1, len(others))
    near = nearest(torch.from_numpy(points), torch.from_numpy(others), k)
    padding = NEIGHBOURS + 1 - k
    return np.pad(near, ((0, 0), (0, padding)), mode="edge").astype(np.int32)


def graph_rows(graph: Graph) -> Int[np.ndarray, "n k"]:
    """For each image the row of its node, then those of the node's neighbours."""
    k = graph.near.shape[1]
    rows = np.empty((len(graph.rows), NEIGHBOURS + 1), np.int32)
    rows[:] = graph.rows[:, None]
    rows[:, 1 : k + 1] = graph.rows[graph.near]
    return rows[graph.node]
