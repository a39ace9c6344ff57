"""Scores of generated images against closed forms and brute force."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from capspoe.evaluate.generation import fid, generation_scores, kid, neighbour_scores, scores_of_sets


@pytest.fixture
def sets():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 5)), 0.8 * rng.standard_normal((41, 5)) + 0.3


def test_fid_of_axis_aligned_gaussians_is_the_closed_form():
    corners = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])  # variance 4/3 along each axis
    found = fid(corners * [2, 3] + [1, 2], corners * [1, 4] + [0, 4])
    assert found == pytest.approx(1 + 4 + 4 / 3 * ((2 - 1) ** 2 + (3 - 4) ** 2))


def test_fid_is_heusels_formula(sets):
    (p, q), (m, n) = ([np.cov(x.T) for x in sets], [x.mean(0) for x in sets])
    expected = ((m - n) ** 2).sum() + np.trace(p + q - 2 * sqrtm(p @ q).real)
    assert fid(*sets) == pytest.approx(expected, rel=1e-9)
    assert fid(*sets[::-1]) == pytest.approx(expected, rel=1e-9)
    assert fid(sets[0], sets[0]) == pytest.approx(0, abs=1e-9)


def test_fid_of_singular_covariances():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((4, 9)), rng.standard_normal((5, 9))
    root = sqrtm(np.cov(x.T) + 1e-9 * np.eye(9)).real
    trace = np.sqrt(np.clip(np.linalg.eigvalsh(root @ np.cov(y.T) @ root), 0, None)).sum()
    expected = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(np.cov(x.T) + np.cov(y.T)) - 2 * trace
    assert fid(x, y) == pytest.approx(expected, rel=1e-3)


def test_kid_is_the_double_sum(sets):
    def mean_kernel(x, y, distinct):
        pairs = [(a @ b / 5 + 1) ** 3 for i, a in enumerate(x) for j, b in enumerate(y) if not distinct or i != j]
        return np.mean(pairs)

    x, y = sets
    expected = mean_kernel(x, x, True) + mean_kernel(y, y, True) - 2 * mean_kernel(x, y, False)
    assert kid(x, y) == pytest.approx(expected, rel=1e-9)


def by_loops(real, fake, k):
    def distance(a, b):
        return np.sqrt(((a - b) ** 2).sum())

    def radius(points, at):
        return sorted(distance(points[at], p) for i, p in enumerate(points) if i != at)[k - 1]

    n, m = range(len(real)), range(len(fake))
    real_ball, fake_ball = [radius(real, i) for i in n], [radius(fake, j) for j in m]
    pair = [[distance(r, f) for f in fake] for r in real]
    return {
        "precision": np.mean([any(pair[i][j] <= real_ball[i] for i in n) for j in m]),
        "recall": np.mean([any(pair[i][j] <= fake_ball[j] for j in m) for i in n]),
        "density": sum(pair[i][j] <= real_ball[i] for i in n for j in m) / (k * len(fake)),
        "coverage": np.mean([any(pair[i][j] <= real_ball[i] for j in m) for i in n]),
    }


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_neighbour_scores_by_loops(sets, shift, k):
    real, fake = sets[0], sets[1] + shift
    expected = by_loops(real, fake, k)
    assert neighbour_scores(real, fake, k) == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["precision"] < 1 or 0 < expected["recall"] < 1


def test_neighbour_scores_of_extremes(sets):
    real = sets[0]
    assert neighbour_scores(real, real + 100) == {"precision": 0, "recall": 0, "density": 0, "coverage": 0}
    collapsed = neighbour_scores(real, np.repeat(real[:1], 40, 0))
    assert collapsed["precision"] == 1
    assert collapsed["recall"] == pytest.approx(1 / 60)  # the image itself, at distance exactly 0


def test_only_fid_uses_all_real_images(sets):
    real, fake = sets
    some = real[np.linspace(0, 59, 41).astype(int)]
    expected = {"fid": fid(real, fake), "kid": kid(some, fake), **neighbour_scores(some, fake, 3)}
    assert generation_scores(real, fake, 3) == expected


def test_sets_are_averaged(sets):
    real, fake = sets
    first, second = generation_scores(real, fake[::2]), generation_scores(real, fake[1::2])
    found = scores_of_sets(real, fake, 2)
    assert found["recall"] == pytest.approx((first["recall"] + second["recall"]) / 2)
    assert found["fid"] == pytest.approx((first["fid"] + second["fid"]) / 2)
    assert found["fid_spread"] == pytest.approx(abs(first["fid"] - second["fid"]) / 2)
    assert scores_of_sets(real, fake) == generation_scores(real, fake) | {"fid_spread": 0}
