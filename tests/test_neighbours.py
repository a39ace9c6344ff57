"""Groups from nearest neighbours, and the gate that learns them."""

import json
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from capspoe import CapsuleLayer, contrastive, data, guide, neighbours, train
from capspoe.fitting import codes_of
from capspoe.kernels import use
from capspoe.model import CapsulePoE
from capspoe.noise import Noise
from runs import QUICK


def strips(per_strip: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three long strips side by side, nearer to one another than they are long."""
    rng = np.random.default_rng(seed)
    strip = rng.permutation(np.repeat(np.arange(3), per_strip))
    along, across = rng.uniform(0, 3, len(strip)), strip + 0.1 * rng.standard_normal(len(strip))
    rest = 0.3 * rng.standard_normal((len(strip), 4))
    return np.column_stack([along, across, rest]).astype(np.float32), strip


def agreement(found: np.ndarray, true: np.ndarray) -> float:
    return sum(np.bincount(true[found == g]).max() for g in np.unique(found)) / len(true)


@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 5), st.integers(0, 99))
def test_nearest_is_what_sorting_all_distances_gives(n, m, k, seed):
    rng = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, 3, generator=rng), torch.randn(m, 3, generator=rng)
    k = min(k, m)
    expected = torch.cdist(x.double(), y.double()).sort(1).values[:, :k]
    found = torch.from_numpy(neighbours.nearest(x, y, k))
    assert found.min() >= 0
    assert found.max() < m
    distance = (x[:, None].double() - y[found].double()).norm(dim=2)
    torch.testing.assert_close(distance, expected, atol=1e-3, rtol=0)


def test_groups_follow_chains_of_neighbours_where_k_means_cannot():
    points, strip = strips()
    found = neighbours.neighbour_groups(points, 3)
    assert found is not None
    assert agreement(found, strip) == 1
    by_distance = neighbours.KMeans(3, n_init=3, random_state=0).fit_predict(points)
    assert agreement(by_distance, strip) < 0.7


def test_angles_are_those_between_the_distributions_after_the_walk(monkeypatch):
    """Found here directly, by taking the walk's matrix to its power."""
    points = torch.from_numpy(strips(20)[0])
    near = neighbours.nearest(points, points, 6)[:, 1:]
    graph = np.zeros((60, 60))
    np.put_along_axis(graph, near, 1, 1)
    graph = graph + graph.T
    degree = graph.sum(1)
    after = np.linalg.matrix_power(graph / degree[:, None], neighbours.WALK) / np.sqrt(degree)
    after /= np.linalg.norm(after, axis=1, keepdims=True)

    def cosines(size: int) -> np.ndarray:
        places = neighbours.walk_coordinates(near, size, seed=0)
        return places @ places.T

    np.testing.assert_allclose(cosines(60), after @ after.T, atol=1e-8)
    np.testing.assert_allclose(cosines(20), after @ after.T, atol=0.02)
    monkeypatch.setattr(neighbours, "DENSE", 10)  # the leading ones alone, by iteration
    np.testing.assert_allclose(cosines(12), after @ after.T, atol=0.1)


def test_images_outside_the_graph_take_the_group_of_those_near_them(monkeypatch):
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 500)
    points = (10 * np.eye(6)[true] + rng.standard_normal((500, 6))).astype(np.float32)
    monkeypatch.setattr(neighbours, "GRAPH_IMAGES", 120)
    found = neighbours.neighbour_groups(points, 3)
    assert found is not None
    assert found.shape == (500,)
    assert agreement(found, true) == 1


def test_the_same_seed_gives_the_same_groups():
    points, _ = strips()
    one, other = (neighbours.neighbour_groups(points, 5, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "codes",
    [
        np.zeros((100, 4), np.float16),  # all alike
        np.random.default_rng(0).random((15, 4)).astype(np.float16),  # too few
        np.repeat(np.eye(2, dtype=np.float16), 50, 0),  # two different ones for four groups
    ],
    ids=["alike", "few", "two"],
)
def test_codes_that_cannot_be_told_apart_have_no_groups_or_whole_ones(codes):
    found = neighbours.neighbour_groups(codes, 4)
    assert found is None or set(found) == set(range(4))


def test_most_common_prefers_the_nearest_among_equals():
    votes = np.array([[1, 2, 2], [3, 1, 2], [0, 0, 1]])
    assert neighbours.most_common(votes).tolist() == [2, 3, 0]


@pytest.mark.parametrize("backend", ["kernel", "reference"])
def test_a_step_with_given_winners_teaches_those_capsules_alone(backend):
    layer = CapsuleLayer((6, 4), (3, 2), seed=1)
    x = torch.rand(5, 6, 4, generator=torch.Generator().manual_seed(0))
    on = torch.tensor([2, 0, 2, 2, 0])
    with use(backend):
        gradient, _ = contrastive.step(layer, x, Noise(0, 0, torch.arange(5)), on=on)
    size = gradient.w_JNMI.abs().sum((1, 2, 3))
    assert size[1] == 0
    assert (size[[0, 2]] > 0).all()


def test_a_guided_gate_learns_its_groups(tmp_path):
    """The gate, asked without the guide, names the group of most images."""
    settings = {**QUICK, "limit": 600, "epochs": 30, "layers": "10x6", "checkpoint_seconds": 1e6}
    model = train("digits", tmp_path / "run", quiet=True, **settings)
    pixels = data.load("digits").pixels[:600]
    codes = codes_of(model, pixels)
    groups = neighbours.neighbour_groups(codes, 10, 5, 0)
    found = model.encode(pixels).on.argmax(1)
    assert agreement(found, groups) > 0.6  # guessing gives 0.2
    unguided = CapsulePoE(model.config.replace(neighbours=0), model.image)
    assert guide.guide_for(unguided, codes, tmp_path, journal=None) is None


def test_kept_groups_are_used_again_and_damaged_ones_are_not(tmp_path):
    winner = np.array([0, 2, 1, 2])
    guide.write(tmp_path, winner)
    np.testing.assert_array_equal(guide.read(tmp_path, 4, 3), winner)
    assert guide.read(tmp_path, 5, 3) is None
    assert guide.read(tmp_path, 4, 2) is None
    whole = (tmp_path / "groups.npy").read_bytes()
    for last in (1, 7):  # another capsule's number, and none
        (tmp_path / "groups.npy").write_bytes(whole[:-8] + last.to_bytes(8, sys.byteorder))
        assert guide.read(tmp_path, 4, 3) is None
    (tmp_path / "groups.npy").write_bytes(whole)
    (tmp_path / "groups.json").write_text(json.dumps({}))
    assert guide.read(tmp_path, 4, 3) is None
    guide.remove(tmp_path)
    assert not list(tmp_path.iterdir())
