"""Clustering scores by hand."""

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from capspoe.evaluate.clustering import class_entropy, clustering_scores, contingency


def test_by_hand():
    winner, labels = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 0])
    assert contingency(winner, labels, 4, 2).tolist() == [[2, 1], [0, 2], [1, 0], [0, 0]]
    assert clustering_scores(winner, labels, 4, 2) == {
        "purity": pytest.approx(5 / 6),
        "nmi": pytest.approx(normalized_mutual_info_score(winner, labels)),
        "one_to_one": pytest.approx(4 / 6),  # group 0 for class 0, group 1 for class 1; the others are wrong
        "alive": 3,
        "capsules": 4,
        "classes_covered": 2,
    }


def test_one_to_one_is_not_greedy():
    """Group 0 has most of class 0, but is needed for class 1."""
    winner, labels = np.repeat([0, 0, 1], [5, 4, 4]), np.repeat([0, 1, 0], [5, 4, 4])
    assert clustering_scores(winner, labels, 2, 2)["one_to_one"] == pytest.approx(8 / 13)


def test_a_group_with_little_is_dead():
    for few, alive in ((4, 1), (5, 2)):  # of 100: a tenth of an equal share is 5
        winner = np.repeat([0, 1], [100 - few, few])
        assert clustering_scores(winner, np.zeros(100, int), 2, 1)["alive"] == alive


def test_class_entropy():
    table = np.array([[2, 0, 0, 0], [1, 1, 1, 1], [3, 3, 0, 0]])
    np.testing.assert_allclose(class_entropy(table), [0, 1, 0.5], atol=1e-12)
    np.testing.assert_allclose(class_entropy(np.array([[7]])), [0])
