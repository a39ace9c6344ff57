"""Capsules against labels, by hand."""

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from capspoe.evaluate.specialise import class_entropy, contingency, nmi, one_to_one, purity, specialisation


def test_by_hand():
    winner = np.array([0, 0, 0, 1, 1, 2])
    labels = np.array([0, 0, 1, 1, 1, 0])
    table = contingency(winner, labels, 4, 2)
    assert table.tolist() == [[2, 1], [0, 2], [1, 0], [0, 0]]
    assert purity(table) == pytest.approx(5 / 6)
    assert one_to_one(table) == pytest.approx(4 / 6)  # capsule 0 for class 0, 1 for 1; the others are wrong
    scores = specialisation(winner, labels, 4, 2)
    assert (scores["alive"], scores["capsules"], scores["classes_covered"]) == (3, 4, 2)


def test_one_to_one_is_not_greedy():
    """Capsule 0 has most of class 0, but is needed for class 1."""
    assert one_to_one(np.array([[5, 4], [4, 0]])) == pytest.approx(8 / 13)


def test_a_capsule_with_a_trickle_is_dead():
    winner = np.array([0] * 99 + [1])
    assert specialisation(winner, np.zeros(100, int), 2, 1)["alive"] == 1


def test_nmi_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 500)
    winner = np.where(rng.random(500) < 0.6, labels, rng.integers(0, 20, 500))
    expected = normalized_mutual_info_score(labels, winner)
    assert nmi(contingency(winner, labels, 20, 10)) == pytest.approx(expected)


def test_nmi_of_independent_and_of_equal():
    assert nmi(np.full((3, 4), 5)) == pytest.approx(0, abs=1e-12)
    assert nmi(np.diag([3, 4, 5])) == pytest.approx(1)


def test_class_entropy():
    found = class_entropy(np.array([0, 0, 0, 1, 2, 3]), np.array([0, 0, 1, 1, 1, 1]), 3, 4)
    quarter = -(0.25 * np.log(0.25)) * 4 / np.log(4)
    assert found[0] == pytest.approx(0)
    assert found[1] == pytest.approx(quarter)
    assert found[2] is None
