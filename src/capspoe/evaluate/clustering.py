"""Whether capsules specialise in classes: the winners as a clustering, compared with the labels."""

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from scipy.stats import entropy
from sklearn.metrics import normalized_mutual_info_score

ALIVE = 0.1  # a capsule with less than this fraction of an equal share of the images is dead

Labels = Int[np.ndarray, " n"]


def clustering_scores(
    winner: Labels,
    labels: Labels,
    groups: int,
    classes: int,
) -> dict[str, float | int]:
    """Scores of a clustering into `groups` groups.

    purity : share of images whose class is the most frequent one of their group
    nmi : mutual information of group and class over the mean of their entropies
    one_to_one : accuracy if each class gets one group of its own, by the best assignment; spare
        groups count as wrong
    alive : groups with at least a tenth of an equal share of the images
    classes_covered : classes that are the most frequent one of some group
    """
    table = contingency(winner, labels, groups, classes)
    return {
        "purity": float(table.max(1).sum() / table.sum()),
        "nmi": float(normalized_mutual_info_score(labels, winner)),
        "one_to_one": float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum()),
        "alive": int((table.sum(1) >= ALIVE * table.sum() / groups).sum()),
        "capsules": groups,
        "classes_covered": len(set(table[table.any(1)].argmax(1).tolist())),
    }


def contingency(
    winner: Labels,
    labels: Labels,
    groups: int,
    classes: int,
) -> Int[np.ndarray, "J K"]:
    """Number of images of class k in group j."""
    counts = np.bincount(winner * classes + labels, minlength=groups * classes)
    return counts.reshape(groups, classes)


def class_entropy(table: Int[np.ndarray, "J K"]) -> Float[np.ndarray, " J"]:
    """Entropy of the classes in each group: 0 for a single class, 1 for all equally often.

    No group may be empty.
    """
    return entropy(table, axis=1) / np.log(max(table.shape[1], 2))
