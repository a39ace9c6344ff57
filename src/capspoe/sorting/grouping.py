"""Groups of images by spectral clustering of their neighbour graph, and how well each image fits its group."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.cluster.hierarchy import fcluster, linkage

from capspoe.data import evenly_spaced
from capspoe.training.spectral import (
    GRAPH_IMAGES,
    MIN_IMAGES,
    count_groups,
    cut,
    distinct_points,
    k_means,
    majority,
    nearest,
    nearest_others,
)

NEIGHBOURS = 10  # of each image in the graph
NEAR = 10  # neighbours that decide how probable a group is
FENCES = 3.0  # of the logarithm of the distance: quartile distances above the upper quartile
ODD = -1  # the group of images unlike all others
FEW = 6  # images per group, if there are too few for a graph and no number is asked for


class Graph(NamedTuple):
    """The different images of a sample of all images, and the nearest of each.

    rows        (m,): of these images
    node        (n,): which of them each image is, or is nearest to
    near        (m, k): the nearest others, as places in `rows`
    distance    (m, k): how far they are
    """

    rows: Int[np.ndarray, " m"]
    node: Int[np.ndarray, " n"]
    near: Int[np.ndarray, "m k"]
    distance: Float[np.ndarray, "m k"]


def neighbour_graph(points: Float[np.ndarray, "n D"]) -> Graph:
    """The neighbour graph of points, without their last coordinate; copies share a node."""
    inside = np.ascontiguousarray(points[:, :-1])
    sample = evenly_spaced(len(points), GRAPH_IMAGES)
    node_of_sample = distinct_points(points, sample)
    rows = sample[np.unique(node_of_sample, return_index=True)[1]]
    nodes = torch.from_numpy(inside[rows])
    k = min(max(NEIGHBOURS, NEAR), len(rows) - 1)
    near = nearest_others(nodes, k)
    node = np.empty(len(points), np.int64)
    if len(sample) < len(points):
        node[:] = nearest(torch.from_numpy(inside), nodes, 1)[:, 0]
    node[sample] = node_of_sample
    return Graph(rows, node, near, distances(points[rows], points[rows], near))


def distances(
    points: Float[np.ndarray, "n D"], others: Float[np.ndarray, "m D"], near: Int[np.ndarray, "n k"]
) -> Float[np.ndarray, "n k"]:
    """The distance of each point to each of its neighbours."""
    columns = [np.linalg.norm(points - others[near[:, place]], axis=1) for place in range(near.shape[1])]
    return np.stack(columns, 1) if columns else np.zeros((len(points), 0), np.float32)


def group_nodes(
    points: Float[np.ndarray, "n D"],
    graph: Graph,
    groups: int | None,
    separates: bool,
    seed: int,
    weighted: bool = False,
) -> Int[np.ndarray, " m"]:
    """The group of each node, numbered from 0.

    Parameters
    ----------
    points : of all images
    groups : how many; None takes as many as the images seem to have
    separates : whether kinds of images are clusters of points; if they are not, k-means divides them better than a
        graph does (purity .36 against .27 on 4,000 images of CIFAR-10)
    weighted : whether edges count by the neighbours that their ends share
    """
    nodes = points[graph.rows, :-1]
    wanted = groups
    if wanted is None and len(nodes) >= 2 * MIN_IMAGES:
        wanted = count_groups(nodes, NEIGHBOURS, seed)
    if wanted is None:
        wanted = max(1, len(nodes) // FEW)
    wanted = min(wanted, len(nodes))
    if wanted == 1:
        return np.zeros(len(nodes), np.int64)
    if not separates:
        return numbered(k_means(nodes, wanted, seed, 10))
    if len(nodes) >= MIN_IMAGES * wanted:
        near = graph.near[:, :NEIGHBOURS]
        return numbered(cut(near, wanted, seed, shared_neighbours(near) if weighted else None))
    # Too few images for a graph: merge the nearest.
    tree = linkage(nodes, "ward")
    return numbered(fcluster(tree, wanted, "maxclust"))


def shared_neighbours(near: Int[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """For each node and its neighbours the share of their neighbourhoods that they have in common (Jaccard index).

    An edge between two neighbourhoods that hardly overlap is often an accident (PhenoGraph, Levine et al. 2015).
    """
    n, k = near.shape
    around = np.hstack([near, np.arange(n)[:, None]])
    weights = np.empty((n, k))
    for start in range(0, n, 256):
        here = around[start : start + 256, None, :, None]
        there = around[near[start : start + 256], None, :]
        common = (here == there).sum((2, 3))
        weights[start : start + 256] = common / (2 * (k + 1) - common)
    return weights


def numbered(group: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """The same groups, numbered from 0 without gaps."""
    return np.unique(group, return_inverse=True)[1].astype(np.int64)


class Fit(NamedTuple):
    """How well images fit their groups.

    probability   share of the nearest images that are in the group, each counted less if it is unusually far
    distance      mean distance of the nearest images, relative to what is usual among those
    """

    probability: Float[np.ndarray, " n"]
    distance: Float[np.ndarray, " n"]


def usual_distance(graph: Graph) -> Float[np.ndarray, " m"]:
    """The distance of each node to its farthest neighbour in the graph: the scale of its surroundings."""
    if graph.distance.shape[1] == 0:
        return np.ones(len(graph.rows))
    floor = 1e-6 + 0.05 * float(np.median(graph.distance[:, -1]))
    return np.maximum(graph.distance[:, -1], floor)


def fit_of(
    group: Int[np.ndarray, " n"],
    near_group: Int[np.ndarray, "n k"],
    distance: Float[np.ndarray, "n k"],
    usual: Float[np.ndarray, "n k"],
) -> Fit:
    """How well images fit.

    Parameters
    ----------
    group : of each image
    near_group, distance, usual : of each of its neighbours the group, how far it is, and its usual distance
    """
    if near_group.shape[1] == 0:
        return Fit(np.ones(len(group)), np.zeros(len(group)))
    relative = distance / usual
    # A neighbour within its usual distance counts fully; at twice this distance it counts e^-3.
    weight = np.exp(-np.maximum(np.square(relative) - 1, 0))
    together = near_group == group[:, None]
    return Fit((weight * together).mean(1), relative.mean(1))


def fence(distance: Float[np.ndarray, " n"]) -> float:
    """Distances beyond this are far outliers: Tukey's outer fence, on a logarithmic scale."""
    logarithm = np.log(np.maximum(distance, 1e-9))
    low, high = np.quantile(logarithm, [0.25, 0.75])
    return float(np.exp(high + FENCES * max(high - low, 0.05)))


class Assigned(NamedTuple):
    """The group of new images, how well they fit, and the known image that is nearest to each."""

    group: Int[np.ndarray, " n"]
    fit: Fit
    nearest: Int[np.ndarray, " n"]


def assign(
    points: Float[np.ndarray, "n D"],
    known: Float[np.ndarray, "m D"],
    group: Int[np.ndarray, " m"],
    usual: Float[np.ndarray, " m"],
) -> Assigned:
    """The group that most of the nearest known images are in."""
    k = min(NEAR, len(known))
    near = nearest(torch.from_numpy(points), torch.from_numpy(known), k)
    winner = majority(group[near])
    fit = fit_of(winner, group[near], distances(points, known, near), usual[near])
    return Assigned(winner, fit, near[:, 0])


def medoid(points: Float[np.ndarray, "n D"], most: int = 1000) -> int:
    """The point with the smallest mean distance to the others, among and to at most `most` of them."""
    rows = evenly_spaced(len(points), most)
    some = torch.from_numpy(np.ascontiguousarray(points[rows]))
    return int(rows[int(torch.cdist(some, some).mean(1).argmin())])


def typicality(
    points: Float[np.ndarray, "n D"], group: Int[np.ndarray, " n"], covers: dict[int, int]
) -> Float[np.ndarray, " n"]:
    """The share of the group's images that are at least as far from its cover as this one is."""
    typical = np.zeros(len(points))
    for number, cover in covers.items():
        members = np.flatnonzero(group == number)
        far = np.linalg.norm(points[members] - points[cover], axis=1)
        order = np.argsort(np.argsort(-far, kind="stable"), kind="stable")
        typical[members] = (order + 1) / len(members)
    return typical


def odd_nodes(fit: Fit) -> Bool[np.ndarray, " n"]:
    """Which images are unlike all others."""
    return fit.distance > fence(fit.distance)
