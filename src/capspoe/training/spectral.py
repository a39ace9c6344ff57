r"""Spectral clustering of a k-nearest-neighbour graph: the gate's targets.

Diffusion maps (Coifman and Lafon 2006) of the graph's random walk, rows normalised to unit length (Ng, Jordan and
Weiss 2002), then k-means. What the graph compares, codes or another view of the images, is the caller's choice
(`capspoe.training.views`). On MNIST the 20 groups of the codes have purity .96, k-means on the same codes .73.
"""

import warnings
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from capspoe.data import evenly_spaced

DIFFUSION_STEPS = 30
PCA_DIMENSIONS = 64  # in which neighbours are searched
GRAPH_IMAGES = 60_000  # images in the graph; the others take the group of their nearest ones in it
EXACT_IMAGES = 200_000  # images up to which those are searched exactly, which is fast enough
PCA_IMAGES = 10_000  # images that the PCA is fitted to, and on which k-means starts
MIN_IMAGES = 10  # per group, on average
COUNT_IMAGES = 5000  # images that `count_groups` and the choice of a view look at
MOST_GROUPS = 40  # groups that it considers
DENSE = 2000  # images up to which a dense eigendecomposition is used
_CHUNK = 512  # rows whose distances to all others are computed at once
_BLOCK = 32  # neighbouring columns of which only the minimum is compared first

Search = Callable[[Float[Tensor, "n D"]], Int[np.ndarray, "n k"]]  # the nearest nodes of each point


def spectral_groups(
    points: np.ndarray, groups: int, neighbours: int = 10, seed: int = 0
) -> Int[np.ndarray, " n"] | None:
    """Group points by spectral clustering of their k-nearest-neighbour graph.

    Parameters
    ----------
    points : (n, ...), codes or the points of a view; compared in their leading principal components
    groups : number of groups
    neighbours : edges that each point adds to the graph
    seed : of the PCA, the eigensolver and k-means

    Returns
    -------
    The group of each point. No group is empty. None if there are too few different points for this many groups.
    """
    n = len(points)
    sample = evenly_spaced(n, GRAPH_IMAGES)
    # Copies share one node, or they would fill each other's neighbour lists.
    node = distinct_points(points, sample)
    node_rows = sample[np.unique(node, return_index=True)[1]]
    if groups < 2 or len(node_rows) < MIN_IMAGES * groups:
        return None

    reduced = pca_points(points, seed)
    nodes = reduced[node_rows]
    k = min(neighbours, len(nodes) - 1)
    group_of_node = cut(nearest_others(nodes, k), groups, seed)
    if len(np.unique(group_of_node)) < groups:
        return None

    group = np.empty(n, np.int64)
    if len(sample) < n:
        group[:] = vote(reduced, nodes, group_of_node, k, seed)
    # The sample does not vote, because that could leave a group empty.
    group[sample] = group_of_node[node]
    return group


class Kinds(NamedTuple):
    """Groups on two levels: kinds of objects, each divided by appearance.

    group    (n,): of each image
    kind     (J,): of each group; the groups of a kind are numbered in sequence
    """

    group: Int[np.ndarray, " n"]
    kind: Int[np.ndarray, " J"]


def two_level_groups(
    points: np.ndarray, appearance: np.ndarray, groups: int, kinds: int, neighbours: int = 10, seed: int = 0
) -> Kinds | None:
    """Find kinds by spectral clustering, then divide each kind by k-means on what its images look like.

    A kind can be pure and wide, such as a digit in all its slants. A capsule has a few linear numbers, which model a
    part of it better.

    Parameters
    ----------
    points : (n, ...), compared by the neighbour graph: what makes two images the same kind
    appearance : (n, ...), pixels or codes, in whose leading principal components each kind is divided
    groups : number of groups; each kind gets a share of them in proportion to its size, and at least one
    kinds : number of kinds, such as `count_groups` finds; at most `groups`

    Returns
    -------
    None if the images are too few or too similar.
    """
    kind = spectral_groups(points, min(kinds, groups), neighbours, seed)
    if kind is None:
        return None
    shares = proportional_shares(np.bincount(kind), groups)
    looks = pca_points(appearance, seed).numpy()
    group = np.empty(len(kind), np.int64)
    first = 0
    for number, share in enumerate(shares):
        members = np.flatnonzero(kind == number)
        if share > 1:
            group[members] = first + k_means(looks[members], share, seed)
        else:
            group[members] = first
        first += share
    if len(np.unique(group)) < groups:
        return None
    return Kinds(group, np.repeat(np.arange(len(shares)), shares))


def proportional_shares(sizes: Int[np.ndarray, " K"], total: int) -> Int[np.ndarray, " K"]:
    """Divide `total` among the sizes: one for each, the others where most is left for each (D'Hondt's method)."""
    shares = np.ones(len(sizes), np.int64)
    while shares.sum() < total:
        shares[np.argmax(sizes / shares)] += 1
    return shares


def count_groups(points: np.ndarray, neighbours: int = 10, seed: int = 0) -> int:
    """The smallest number of spectral groups whose modularity is within 1% of the highest; 1 for too few points.

    For images, codes or the points of a view (n, ...).
    """
    sample = distinct_sample(points)
    most = min(MOST_GROUPS, len(sample) // MIN_IMAGES)
    if most < 2:
        return 1
    scores = modularities(sample, range(2, most + 1), neighbours, seed)
    enough = np.array(scores) >= 0.99 * max(scores)
    return 2 + int(np.argmax(enough))


def distinct_sample(points: np.ndarray) -> Float[np.ndarray, "m V"]:
    """The different ones among COUNT_IMAGES evenly spaced points (n, ...)."""
    flat = points.reshape(len(points), -1)
    return np.unique(flat[evenly_spaced(len(points), COUNT_IMAGES)], axis=0)


def modularities(
    points: Float[np.ndarray, "n V"], numbers: Sequence[int], neighbours: int = 10, seed: int = 0
) -> list[float]:
    """The modularity of as many spectral groups as each of the numbers says."""
    near = nearest_others(pca_points(points, seed), min(neighbours, len(points) - 1))
    coordinates = diffusion_map(near, 2 * max(numbers), seed)  # eigenvalues ascend
    scores = []
    for groups in numbers:
        group = k_means(unit(coordinates[:, -2 * groups :]), groups, seed, 5)
        scores.append(modularity(group, near))
    return scores


def modularity(group: Int[np.ndarray, " n"], neighbours: Int[np.ndarray, "n k"]) -> float:
    """Of a grouping of the nearest-neighbour graph's nodes (Newman and Girvan 2004).

    The share of the graph's edges inside groups, minus what it would be if the same ends were joined at random.
    """
    here = np.repeat(group, neighbours.shape[1])
    there = group[neighbours].ravel()
    share = np.bincount(np.concatenate([here, there])) / (2 * len(here))
    return float((here == there).mean() - np.square(share).sum())


def distinct_points(points: np.ndarray, rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """Number the different points of the rows, in order of appearance; returns each row's number."""
    numbers: dict[bytes, int] = {}
    keys = (blake2b(points[row].tobytes(), digest_size=16).digest() for row in rows)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def pca_points(points: np.ndarray, seed: int, fitted_to: np.ndarray | None = None) -> Float[Tensor, "n D"]:
    """The points (n, ...) in their leading principal components, or in those of others, read in pieces."""
    n = len(points)
    width = int(np.prod(points.shape[1:]))
    known = points if fitted_to is None else fitted_to
    pca = fit_pca(known[evenly_spaced(len(known), PCA_IMAGES)].reshape(-1, width), seed)
    reduced = np.empty((n, pca.n_components_), np.float32)
    for start in range(0, n, PCA_IMAGES):
        piece = points[start : start + PCA_IMAGES].reshape(-1, width)
        reduced[start : start + PCA_IMAGES] = pca.transform(piece.astype(np.float32))
    return torch.from_numpy(reduced)


def fit_pca(sample: Float[np.ndarray, "m V"], seed: int) -> PCA:
    """The principal components of a sample, as many as neighbours are searched in."""
    size = min(PCA_DIMENSIONS, sample.shape[1], len(sample) - 1)
    pca = PCA(size, svd_solver="randomized", random_state=seed % 2**32)
    with np.errstate(invalid="ignore"):  # all points are equal: zero variance
        return pca.fit(sample.astype(np.float32))


def nearest_others(points: Float[Tensor, "n D"], k: int) -> Int[np.ndarray, "n k"]:
    """Indices of the k other points nearest to each point: the nearest of all is the point itself."""
    return nearest(points, points, k + 1)[:, 1:]


def nearest(x: Float[Tensor, "n D"], y: Float[Tensor, "m D"], k: int) -> Int[np.ndarray, "n k"]:
    """Indices of the k rows of y nearest to each row of x, nearest first: exact, by blocks.

    The k smallest entries of a row lie in the k blocks with the smallest minima, and a block minimum is far cheaper
    than a full top-k.
    """
    blocks = -(-len(y) // _BLOCK)
    squares = torch.full((blocks * _BLOCK,), float("inf"))  # padding is never near
    squares[: len(y)] = y.square().sum(1)
    y = torch.cat([y, y.new_zeros(blocks * _BLOCK - len(y), y.shape[1])])
    indices = torch.empty(len(x), k, dtype=torch.int64)
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK]
        # Squared distances, apart from the square of x, which changes no order.
        far_BLK = torch.addmm(squares, part, y.T, alpha=-2).view(len(part), blocks, _BLOCK)
        best = far_BLK.amin(2).topk(min(k, blocks), largest=False).indices
        candidates = far_BLK.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
        place = candidates.topk(k, largest=False).indices
        indices[start : start + _CHUNK] = best.gather(1, place // _BLOCK) * _BLOCK + place % _BLOCK
    return indices.numpy()


def approximate_search(y: Float[Tensor, "m D"], k: int, seed: int) -> Search | None:
    """A function that does what `nearest` does, nearly always; None without the package pynndescent."""
    try:
        from pynndescent import NNDescent
    except ImportError:
        return None
    threads = min(torch.get_num_threads(), numba.get_num_threads())
    index = NNDescent(y.numpy(), n_neighbors=15, random_state=seed % 2**32, n_jobs=threads)
    index.prepare()
    return lambda x: index.query(x.numpy(), k)[0]


def cut(
    neighbours: Int[np.ndarray, "n k"], groups: int, seed: int, weights: Float[np.ndarray, "n k"] | None = None
) -> Int[np.ndarray, " n"]:
    """The spectral group of each node of a neighbour graph, whose edges may have weights."""
    return k_means(diffusion_map(neighbours, 2 * groups, seed, weights), groups, seed)


def diffusion_map(
    neighbours: Int[np.ndarray, "n k"], size: int, seed: int, weights: Float[np.ndarray, "n k"] | None = None
) -> Float[np.ndarray, "n q"]:
    """Diffusion-map coordinates of the graph's random walk, scaled to unit length.

    With A the symmetric graph and D its degrees, the walk is D^-1 A and has the eigenvalues of
    D^-1/2 A D^-1/2 = V L V'. The rows of V L^t have the inner products of the walk's distributions after t steps,
    weighted by 1 / D; the leading columns carry nearly all of them.
    """
    n, k = neighbours.shape
    strength = np.ones(n * k) if weights is None else weights.ravel()
    graph = scipy.sparse.csr_matrix((strength, (np.repeat(np.arange(n), k), neighbours.ravel())), (n, n))
    graph = graph + graph.T
    root = np.sqrt(np.asarray(graph.sum(1)).ravel())
    scale = scipy.sparse.diags(1 / root)
    walk = scale @ graph @ scale  # symmetric, with the eigenvalues of the walk
    if n <= DENSE or size >= n:
        values, vectors = np.linalg.eigh(walk.toarray())
        values = values[-size:]
        vectors = vectors[:, -size:]
    else:
        start = np.random.default_rng(seed % 2**64).standard_normal(n)
        values, vectors = eigsh(walk, size, which="LA", tol=1e-3, ncv=3 * size, v0=start)
    coordinates = vectors * values**DIFFUSION_STEPS
    return unit(coordinates)


def unit(rows: Float[np.ndarray, "n q"]) -> Float[np.ndarray, "n q"]:
    """The rows, scaled to unit length."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


def k_means(rows: Float[np.ndarray, "n q"], groups: int, seed: int, tries: int = 50) -> Int[np.ndarray, " n"]:
    """The group of each row, by the best of some tries on a part of them; fewer if there are fewer distinct rows."""
    sample = rows[evenly_spaced(len(rows), PCA_IMAGES)]
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        best = KMeans(groups, n_init=tries, random_state=seed % 2**32).fit(sample)
        return KMeans(groups, init=best.cluster_centers_, n_init=1).fit_predict(rows).astype(np.int64)


def vote(
    points: Float[Tensor, "n D"], nodes: Float[Tensor, "m D"], group: Int[np.ndarray, " m"], k: int, seed: int
) -> Int[np.ndarray, " n"]:
    """The most common group among the k nearest nodes of each point, in pieces."""
    search = None
    if len(points) > EXACT_IMAGES:
        search = approximate_search(nodes, k, seed)
    votes = np.empty(len(points), np.int64)
    for start in range(0, len(points), GRAPH_IMAGES):
        piece = points[start : start + GRAPH_IMAGES]
        near = search(piece) if search else nearest(piece, nodes, k)
        votes[start : start + GRAPH_IMAGES] = majority(group[near])
    return votes


def majority(votes: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """The most common entry of each row; of equals the first, which is the nearest."""
    count = (votes[:, :, None] == votes[:, None, :]).sum(2)
    return votes[np.arange(len(votes)), count.argmax(1)]
