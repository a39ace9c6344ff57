r"""Spectral clustering of the codes' k-nearest-neighbour graph: the gate's targets.

Diffusion maps (Coifman and Lafon 2006) of the graph's random walk, rows normalised to unit length (Ng, Jordan and
Weiss 2002), then k-means. On MNIST the 20 groups have purity .96, k-means on the same codes .73.
"""

import warnings
from collections.abc import Callable
from hashlib import blake2b

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
COUNT_IMAGES, MOST_GROUPS = 5000, 40  # that `count_groups` looks at, and considers
DENSE = 2000  # images up to which a dense eigendecomposition is used
_CHUNK, _BLOCK = 512, 32


def spectral_groups(
    codes: np.ndarray, groups: int, neighbours: int = 5, seed: int = 0
) -> Int[np.ndarray, " n"] | None:
    """The group of each code (n, ...), or None if the codes are too few or too similar to form that many."""
    n = len(codes)
    some = evenly_spaced(n, GRAPH_IMAGES)
    node = distinct_codes(codes, some)  # copies share one, or they would fill each other's neighbour lists
    first = some[np.unique(node, return_index=True)[1]]
    if groups < 2 or len(first) < MIN_IMAGES * groups:
        return None
    points = pca_points(codes, seed)
    inside = points[first]
    k = min(neighbours, len(first) - 1)
    coordinates = diffusion_map(nearest(inside, inside, k + 1)[:, 1:], 2 * groups, seed)
    found = k_means(coordinates, groups, seed)
    if len(np.unique(found)) < groups:
        return None
    everywhere = np.empty(n, np.int64)
    if len(some) < n:
        search = approximate_search(inside, k, seed) if n > EXACT_IMAGES else None
        for start in range(0, n, GRAPH_IMAGES):
            part = points[start : start + GRAPH_IMAGES]
            close = search(part) if search else nearest(part, inside, k)
            everywhere[start : start + GRAPH_IMAGES] = majority(found[close])
    everywhere[some] = found[node]  # not by vote, which could leave a group empty
    return everywhere


def count_groups(images: np.ndarray, neighbours: int = 5, seed: int = 0) -> int:
    """The smallest number of spectral groups whose modularity is within 1% of the highest; 1 for too few images.

    Modularity (Newman and Girvan 2004): the share of the graph's edges inside groups, minus what it would be if the
    same ends were joined at random. For images or codes (n, ...).
    """
    images = np.unique(images.reshape(len(images), -1)[evenly_spaced(len(images), COUNT_IMAGES)], axis=0)
    most = min(MOST_GROUPS, len(images) // MIN_IMAGES)
    if most < 2:
        return 1
    points = pca_points(images, seed)
    near = nearest(points, points, min(neighbours, len(images) - 1) + 1)[:, 1:]
    whole = diffusion_map(near, 2 * most, seed)  # eigenvalues ascend
    found = [k_means(unit(whole[:, -2 * groups :]), groups, seed, 5) for groups in range(2, most + 1)]
    scores = np.array([modularity(group, near) for group in found])
    return 2 + int(np.argmax(scores >= 0.99 * scores.max()))


def modularity(group: Int[np.ndarray, " n"], neighbours: Int[np.ndarray, "n k"]) -> float:
    """Of a grouping of the nearest-neighbour graph's nodes."""
    here, there = np.repeat(group, neighbours.shape[1]), group[neighbours].ravel()
    share = np.bincount(np.concatenate([here, there])) / (2 * len(here))
    return float((here == there).mean() - np.square(share).sum())


def distinct_codes(codes: np.ndarray, rows: Int[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """Number the different codes of the rows, in order of appearance; returns each row's number."""
    numbers: dict[bytes, int] = {}
    keys = (blake2b(codes[row].tobytes(), digest_size=16).digest() for row in rows)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def pca_points(codes: np.ndarray, seed: int) -> Float[Tensor, "n D"]:
    """The codes in their leading principal components, read in pieces."""
    n, width = len(codes), int(np.prod(codes.shape[1:]))
    some = evenly_spaced(n, PCA_IMAGES)
    size = min(PCA_DIMENSIONS, width, len(some) - 1)
    pca = PCA(size, svd_solver="randomized", random_state=seed % 2**32)
    with np.errstate(invalid="ignore"):  # all codes are equal: zero variance
        pca.fit(codes[some].reshape(len(some), width).astype(np.float32))
    points = np.empty((n, size), np.float32)
    for start in range(0, n, PCA_IMAGES):
        piece = codes[start : start + PCA_IMAGES].reshape(-1, width)
        points[start : start + PCA_IMAGES] = pca.transform(piece.astype(np.float32))
    return torch.from_numpy(points)


def nearest(x: Float[Tensor, "n D"], y: Float[Tensor, "m D"], k: int) -> Int[np.ndarray, "n k"]:
    """Indices of the k rows of y nearest to each row of x, nearest first: exact, by blocks.

    The k smallest entries of a row lie in the k blocks with the smallest minima, and a block minimum is far cheaper
    than a full top-k.
    """
    blocks = -(-len(y) // _BLOCK)
    padded = torch.full((blocks * _BLOCK,), float("inf"))
    padded[: len(y)] = y.square().sum(1)
    y = torch.cat([y, y.new_zeros(blocks * _BLOCK - len(y), y.shape[1])])
    found = torch.empty(len(x), k, dtype=torch.int64)
    for start in range(0, len(x), _CHUNK):
        part = x[start : start + _CHUNK]
        far_BLK = torch.addmm(padded, part, y.T, alpha=-2).view(len(part), blocks, _BLOCK)
        best = far_BLK.amin(2).topk(min(k, blocks), largest=False).indices
        candidates = far_BLK.gather(1, best[:, :, None].expand(-1, -1, _BLOCK)).flatten(1)
        place = candidates.topk(k, largest=False).indices
        found[start : start + _CHUNK] = best.gather(1, place // _BLOCK) * _BLOCK + place % _BLOCK
    return found.numpy()


def approximate_search(
    y: Float[Tensor, "m D"], k: int, seed: int
) -> Callable[[Float[Tensor, "n D"]], Int[np.ndarray, "n k"]] | None:
    """A function that does what `nearest` does, nearly always; None without the package pynndescent."""
    try:
        from pynndescent import NNDescent
    except ImportError:
        return None
    threads = min(torch.get_num_threads(), numba.get_num_threads())
    index = NNDescent(y.numpy(), n_neighbors=15, random_state=seed % 2**32, n_jobs=threads)
    index.prepare()
    return lambda x: index.query(x.numpy(), k)[0]


def diffusion_map(neighbours: Int[np.ndarray, "n k"], size: int, seed: int) -> Float[np.ndarray, "n q"]:
    """Diffusion-map coordinates of the graph's random walk, scaled to unit length.

    With A the symmetric graph and D its degrees, the walk is D^-1 A and has the eigenvalues of
    D^-1/2 A D^-1/2 = V L V'. The rows of V L^t have the inner products of the walk's distributions after t steps,
    weighted by 1 / D; the leading columns carry nearly all of them.
    """
    n, k = neighbours.shape
    ones = np.ones(n * k)
    graph = scipy.sparse.csr_matrix((ones, (np.repeat(np.arange(n), k), neighbours.ravel())), (n, n))
    graph = graph + graph.T
    root = np.sqrt(np.asarray(graph.sum(1)).ravel())
    scale = scipy.sparse.diags(1 / root)
    walk = scale @ graph @ scale  # symmetric, with the eigenvalues of the walk
    if n <= DENSE or size >= n:
        values, vectors = np.linalg.eigh(walk.toarray())
        values, vectors = values[-size:], vectors[:, -size:]
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
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        best = KMeans(groups, n_init=tries, random_state=seed % 2**32).fit(rows[evenly_spaced(len(rows), PCA_IMAGES)])
        return KMeans(groups, init=best.cluster_centers_, n_init=1).fit_predict(rows).astype(np.int64)


def majority(votes: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """The commonest entry of each row; of equals the first, which is the nearest."""
    count = (votes[:, :, None] == votes[:, None, :]).sum(2)
    return votes[np.arange(len(votes)), count.argmax(1)]
