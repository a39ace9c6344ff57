"""Scores of realism against closed forms and brute force."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from capspoe.evaluate.realism import Gaussian, fid, frechet, gaussian, kid, radii, realism


@pytest.fixture
def clouds():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 5)), 0.8 * rng.standard_normal((41, 5)) + 0.3


def test_frechet_of_axis_aligned_gaussians_is_the_closed_form():
    p = Gaussian(np.array([1.0, 2.0]), np.diag([4.0, 9.0]))
    q = Gaussian(np.array([0.0, 4.0]), np.diag([1.0, 16.0]))
    assert frechet(p, q) == pytest.approx(1 + 4 + (2 - 1) ** 2 + (3 - 4) ** 2)


def test_frechet_is_heusels_formula(clouds):
    p, q = map(gaussian, clouds)
    root = sqrtm(p.covariance @ q.covariance).real
    expected = ((p.mean - q.mean) ** 2).sum() + np.trace(p.covariance + q.covariance - 2 * root)
    assert fid(*clouds) == pytest.approx(expected, rel=1e-9)
    assert fid(*clouds) == pytest.approx(fid(*clouds[::-1]), rel=1e-9)


def test_fid_of_a_cloud_with_itself_is_0_and_a_shift_counts_squared(clouds):
    x = clouds[0]
    assert fid(x, x) == pytest.approx(0, abs=1e-9)
    assert fid(x, x + np.array([0, 3, 0, 0, 0])) == pytest.approx(9)


def test_fid_without_full_rank():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((4, 9)), rng.standard_normal((5, 9))
    p, q = gaussian(x), gaussian(y)
    root = sqrtm(p.covariance + 1e-9 * np.eye(9)) @ q.covariance @ sqrtm(p.covariance + 1e-9 * np.eye(9))
    trace = np.sqrt(np.clip(np.linalg.eigvalsh(root.real), 0, None)).sum()
    expected = ((p.mean - q.mean) ** 2).sum() + np.trace(p.covariance + q.covariance) - 2 * trace
    assert fid(x, y) == pytest.approx(expected, rel=1e-3)


def test_kid_is_the_double_sum(clouds):
    x, y = clouds

    def k(a, b):
        return (a @ b / len(a) + 1) ** 3

    n, m = len(x), len(y)
    xx = sum(k(x[i], x[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    yy = sum(k(y[i], y[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    xy = sum(k(a, b) for a in x for b in y) / (n * m)
    assert kid(x, y) == pytest.approx(xx + yy - 2 * xy, rel=1e-9)


def test_kid_has_no_bias():
    """Equal distributions: the mean over many small draws is 0 within its error."""
    rng = np.random.default_rng(2)
    values = [kid(rng.standard_normal((8, 3)), rng.standard_normal((8, 3))) for _ in range(3000)]
    assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(len(values))


def by_loops(real, fake, k):
    def distance(a, b):
        return np.sqrt(((a - b) ** 2).sum())

    def radius(points, at, count):
        return sorted(distance(points[at], p) for i, p in enumerate(points) if i != at)[count - 1]

    n, m = len(real), len(fake)
    real_ball = [radius(real, i, k) for i in range(n)]
    fake_ball = [radius(fake, i, k) for i in range(m)]
    inside = [[distance(r, f) for f in fake] for r in real]
    return {
        "precision": np.mean([any(inside[i][j] <= real_ball[i] for i in range(n)) for j in range(m)]),
        "recall": np.mean([any(inside[i][j] <= fake_ball[j] for j in range(m)) for i in range(n)]),
        "density": sum(inside[i][j] <= real_ball[i] for i in range(n) for j in range(m)) / (k * m),
        "coverage": np.mean([any(inside[i][j] <= real_ball[i] for j in range(m)) for i in range(n)]),
    }


@pytest.mark.parametrize("k", [3, 5])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_neighbour_scores_by_loops(clouds, shift, k):
    real, fake = clouds[0], clouds[1] + shift
    expected = by_loops(real, fake, k)
    assert realism(real, fake, k) == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["precision"] < 1 or 0 < expected["recall"] < 1


def test_far_away_is_0_and_collapse_has_no_recall(clouds):
    real = clouds[0]
    assert realism(real, real + 100) == {"precision": 0, "recall": 0, "density": 0, "coverage": 0}
    collapsed = np.repeat(real[:1], 40, 0)
    scores = realism(real, collapsed)
    assert scores["precision"] == 1
    assert scores["recall"] < 0.1


def test_radius_leaves_the_point_itself_out():
    points = np.array([[0.0], [1.0], [3.0], [3.0]])
    np.testing.assert_allclose(radii(points, 1), [1, 1, 0, 0], atol=1e-6)
    np.testing.assert_allclose(radii(points, 2), [3, 2, 2, 2], atol=1e-6)
