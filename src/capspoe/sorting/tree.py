"""A tree of groups: parts of groups, groups, groups of groups; and an order in which neighbours look alike.

The order is that of the tree's leaves, so every level of the tree divides the images into stretches of this order.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import pdist
from sklearn.cluster import KMeans

from capspoe.training.spectral import proportional_shares

PARTS = 4  # leaves per group, on average
MOST_LEAVES = 160
LEAF_IMAGES = 8  # at least, on average
CHAINED = 2000  # images up to which a stretch is ordered from neighbour to neighbour


class Tree(NamedTuple):
    """Leaves in their order, and which neighbouring stretches to merge first.

    group     (L,): of each leaf; the leaves of a group are next to each other
    merges    boundaries between leaves in the order in which they disappear, from many groups to few: boundary b is
              between leaves b and b + 1
    """

    group: Int[np.ndarray, " L"]
    merges: list[int]


class Leaves(NamedTuple):
    """The tree, and the leaf of each image."""

    tree: Tree
    leaf: Int[np.ndarray, " n"]


def build_tree(points: Float[np.ndarray, "n D"], group: Int[np.ndarray, " n"], seed: int) -> Leaves:
    """Divide each group into parts, join groups, and order all of them.

    Parameters
    ----------
    points : of the images
    group : of each image, from 0 without gaps; negative ones are left out and get the leaf -1
    """
    groups = int(group.max()) + 1
    centres = np.stack([points[group == number].mean(0) for number in range(groups)])
    order, joins = ordered(centres)

    sizes = np.bincount(group[group >= 0], minlength=groups)
    total = int(np.clip(sizes.sum() // LEAF_IMAGES, groups, min(PARTS * groups, MOST_LEAVES)))
    shares = proportional_shares(sizes, max(total, groups))
    leaf = np.full(len(points), -1)
    group_of_leaf: list[int] = []
    inner: list[tuple[float, int]] = []  # height and boundary of merges inside groups
    between: list[int] = []  # the boundary after each group, in order
    for number in order.tolist():
        members = np.flatnonzero(group == number)
        part = parts(points[members], int(min(shares[number], max(1, len(members) // 2))), seed)
        count = int(part.max()) + 1
        means = np.stack([points[members[part == k]].mean(0) for k in range(count)])
        part_order, part_joins = ordered(means)
        first = len(group_of_leaf)
        place = np.empty(count, np.int64)
        place[part_order] = np.arange(count)
        leaf[members] = first + place[part]
        group_of_leaf += [number] * count
        inner += [(height, first + boundary) for height, boundary in part_joins]
        between.append(first + count - 1)
    merges = [boundary for _, boundary in sorted(inner)]
    merges += [between[boundary] for _, boundary in sorted(joins)]
    return Leaves(Tree(np.array(group_of_leaf), merges), leaf)


def parts(points: Float[np.ndarray, "n D"], count: int, seed: int) -> Int[np.ndarray, " n"]:
    """Divide the images of a group by k-means; fewer parts if there are fewer different images."""
    count = min(count, len(np.unique(points, axis=0)))
    if count < 2:
        return np.zeros(len(points), np.int64)
    part = KMeans(count, n_init=3, random_state=seed).fit_predict(points)
    return np.unique(part, return_inverse=True)[1]


def ordered(centres: Float[np.ndarray, "k D"]) -> tuple[Int[np.ndarray, " k"], list[tuple[float, int]]]:
    """An order of centres in which neighbours are alike, and for each boundary the height at which it disappears.

    Ward's linkage, which joins groups evenly, with optimal leaf ordering (Bar-Joseph et al. 2001). Average linkage
    leaves single far groups to the end, so that few groups are those and all the rest.
    """
    if len(centres) < 2:
        return np.arange(len(centres)), []
    linked = linkage(pdist(centres), "ward", optimal_ordering=True)
    order = leaves_list(linked)
    # The boundary between two neighbouring leaves disappears when the clusters on its sides are joined.
    place = np.empty(len(centres), np.int64)
    place[order] = np.arange(len(centres))
    span = {k: (int(place[k]), int(place[k])) for k in range(len(centres))}
    heights = []
    for number, (left, right, height, _) in enumerate(linked):
        first, second = sorted([span[int(left)], span[int(right)]])
        heights.append((float(height), first[1]))
        span[len(centres) + number] = (first[0], second[1])
    return order, heights


def image_order(
    points: Float[np.ndarray, "n D"], leaf: Int[np.ndarray, " n"], cover: int | None = None
) -> Int[np.ndarray, " n"]:
    """All images, leaf by leaf; inside a leaf each is followed by the nearest that is left. Leaf -1 comes last."""
    order: list[int] = []
    last = None if cover is None else points[cover]
    for number in [*range(int(leaf.max()) + 1), -1]:
        members = np.flatnonzero(leaf == number)
        if len(members):
            order += members[chain(points[members], last)].tolist()
            last = points[order[-1]]
    return np.array(order, np.int64)


def chain(points: Float[np.ndarray, "n D"], start: Float[np.ndarray, " D"] | None) -> Int[np.ndarray, " n"]:
    """An order from neighbour to neighbour, which begins near `start` or else in the middle."""
    begin = points.mean(0) if start is None else start
    if len(points) > CHAINED:
        return np.argsort(np.linalg.norm(points - begin, axis=1), kind="stable")
    left = np.ones(len(points), bool)
    order = np.empty(len(points), np.int64)
    here = begin
    for place in range(len(points)):
        far = np.where(left, np.square(points - here).sum(1), np.inf)
        order[place] = int(far.argmin())
        left[order[place]] = False
        here = points[order[place]]
    return order
