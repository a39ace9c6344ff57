"""Spectral clustering of a nearest-neighbour graph, against sorted distances and powers of the walk's matrix."""

import sys

import networkx  # torch needs it
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from capspoe.training import spectral
from capspoe.training.spectral import k_means, spectral_groups


def strips(per_strip: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three long strips side by side, closer to one another than they are long."""
    rng = np.random.default_rng(seed)
    strip = rng.permutation(np.repeat(np.arange(3), per_strip))
    along, across = rng.uniform(0, 3, len(strip)), strip + 0.1 * rng.standard_normal(len(strip))
    rest = 0.3 * rng.standard_normal((len(strip), 4))
    return np.column_stack([along, across, rest]).astype(np.float32), strip


def purity(group: np.ndarray, true: np.ndarray) -> float:
    return sum(np.bincount(true[group == g]).max() for g in np.unique(group)) / len(true)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 5), st.integers(0, 99))
def test_nearest_is_what_sorting_all_distances_gives(n, m, k, seed):
    rng = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, 3, generator=rng), torch.randn(m, 3, generator=rng)
    k = min(k, m)
    expected = torch.cdist(x.double(), y.double()).sort(1).values[:, :k]
    near = torch.from_numpy(spectral.nearest(x, y, k))
    assert near.min() >= 0
    assert near.max() < m
    distance = (x[:, None].double() - y[near].double()).norm(dim=2)
    torch.testing.assert_close(distance, expected, atol=1e-3, rtol=0)


def test_groups_follow_chains_of_neighbours_where_k_means_cannot():
    points, strip = strips()
    group = spectral_groups(points, 3)
    assert group is not None
    assert purity(group, strip) == 1
    by_distance = KMeans(3, n_init=3, random_state=0).fit_predict(points)
    assert purity(by_distance, strip) < 0.7


@pytest.mark.parametrize("weighted", [False, True])
def test_coordinates_have_the_angles_of_the_walks_distributions(monkeypatch, weighted):
    """Computed here directly, as a power of the walk's matrix."""
    points = torch.from_numpy(strips(20)[0])
    near = spectral.nearest(points, points, 6)[:, 1:]
    weights = np.random.default_rng(0).uniform(0.5, 1, near.shape) if weighted else None
    graph = np.zeros((60, 60))
    np.put_along_axis(graph, near, 1.0 if weights is None else weights, 1)
    graph = graph + graph.T
    degree = graph.sum(1)
    after = np.linalg.matrix_power(graph / degree[:, None], spectral.DIFFUSION_STEPS) / np.sqrt(degree)
    after /= np.linalg.norm(after, axis=1, keepdims=True)

    def cosines(size: int) -> np.ndarray:
        coordinates = spectral.diffusion_map(near, size, seed=0, weights=weights)
        return coordinates @ coordinates.T

    np.testing.assert_allclose(cosines(60), after @ after.T, atol=1e-8)
    np.testing.assert_allclose(cosines(20), after @ after.T, atol=0.02)
    monkeypatch.setattr(spectral, "DENSE", 10)  # the leading eigenvectors, by iteration
    np.testing.assert_allclose(cosines(12), after @ after.T, atol=0.1)


def test_images_outside_the_graph_take_the_group_of_their_nearest(monkeypatch):
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 500)
    points = (10 * np.eye(6)[true] + rng.standard_normal((500, 6))).astype(np.float32)
    monkeypatch.setattr(spectral, "GRAPH_IMAGES", 120)
    group = spectral_groups(points, 3)
    assert group is not None
    assert group.shape == (500,)
    assert purity(group, true) == 1


@pytest.mark.slow  # pynndescent compiles for half a minute or more
def test_many_images_are_searched_approximately(monkeypatch):
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 900)
    points = (10 * np.eye(6)[true] + rng.standard_normal((900, 6))).astype(np.float32)
    graph, others = torch.from_numpy(points[:400]), torch.from_numpy(points[400:])
    search = spectral.approximate_search(graph, 5, seed=0)
    exact, close = spectral.nearest(others, graph, 5), search(others)
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact, close, strict=True)]) > 0.95
    monkeypatch.setattr(spectral, "GRAPH_IMAGES", 300)
    monkeypatch.setattr(spectral, "EXACT_IMAGES", 500)
    group = spectral_groups(points, 3)
    assert purity(group, true) == 1
    monkeypatch.setitem(sys.modules, "pynndescent", None)  # as if it were not installed
    assert spectral.approximate_search(graph, 5, seed=0) is None
    assert purity(spectral_groups(points, 3), true) == 1


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((100, 4), np.float16),  # all alike
        np.random.default_rng(0).random((15, 4)).astype(np.float16),  # too few
        np.repeat(np.eye(2, dtype=np.float16), 50, 0),  # two different ones for four groups
    ],
    ids=["alike", "few", "two"],
)
def test_equal_or_few_codes_have_no_groups_or_all_of_them(codes):
    group = spectral_groups(codes, 4)
    assert group is None or set(group) == set(range(4))


def test_the_number_of_groups_is_that_of_separate_blobs():
    rng = np.random.default_rng(0)
    for blobs in (3, 12):
        centres = 20 * rng.standard_normal((blobs, 6))
        points = (np.repeat(centres, 40, 0) + rng.standard_normal((40 * blobs, 6))).astype(np.float32)
        assert spectral.count_groups(np.concatenate([points, points])) == blobs  # copies do not count
    assert spectral.count_groups(points[:19]) == 1


def test_modularity_is_that_of_networkx():
    points, strip = strips(20)
    near = spectral.nearest(torch.from_numpy(points), torch.from_numpy(points), 4)[:, 1:]
    graph = networkx.MultiGraph([(i, j) for i, row in enumerate(near.tolist()) for j in row])
    expected = networkx.community.modularity(graph, [set(np.flatnonzero(strip == g).tolist()) for g in range(3)])
    assert spectral.modularity(strip, near) == pytest.approx(expected)


def test_majority_prefers_the_nearest_among_equals():
    votes = np.array([[1, 2, 2], [3, 1, 2], [0, 0, 1]])
    assert spectral.majority(votes).tolist() == [2, 3, 0]


def test_more_tries_of_k_means_end_in_a_lower_minimum():
    rows = np.random.default_rng(0).standard_normal((2000, 8))

    def inertia(seed, *tries):
        group = k_means(rows, 20, seed, *tries)
        return sum(np.square(rows[group == k] - rows[group == k].mean(0)).sum() for k in range(20))

    assert all(inertia(seed) < inertia(seed, 1) for seed in range(3))
    assert np.array_equal(k_means(rows, 20, 0), k_means(rows, 20, 0))


def test_kinds_are_divided_by_appearance():
    """Three strips, each with light and dark points that the graph does not see."""
    points, strip = strips()
    light = np.random.default_rng(1).integers(0, 2, len(strip))
    appearance = light[:, None] + 0.01 * points
    kinds = spectral.two_level_groups(points, appearance, groups=6, kinds=3)
    assert kinds is not None
    assert purity(kinds.group, 2 * strip + light) == 1
    assert kinds.kind.tolist() == [0, 0, 1, 1, 2, 2]
    assert np.array_equal(spectral_groups(points, 3), kinds.kind[kinds.group])


def test_as_many_kinds_as_groups_are_the_kinds_themselves():
    points, _ = strips()
    kinds = spectral.two_level_groups(points, points, groups=3, kinds=5)
    assert kinds is not None
    assert np.array_equal(kinds.group, spectral_groups(points, 3))
    assert kinds.kind.tolist() == [0, 1, 2]


def test_a_kind_of_equal_looks_cannot_be_divided():
    points, _ = strips()
    assert spectral.two_level_groups(points, np.zeros((len(points), 2), np.float32), groups=6, kinds=3) is None
    assert spectral.two_level_groups(points[:20], points[:20], groups=6, kinds=3) is None


def test_larger_kinds_get_more_groups():
    assert spectral.proportional_shares(np.array([600, 300, 100]), 10).tolist() == [6, 3, 1]
    assert spectral.proportional_shares(np.array([1000, 1, 1]), 5).tolist() == [3, 1, 1]
    assert spectral.proportional_shares(np.array([5423, 6742, 5958]), 6).tolist() == [2, 2, 2]
