"""Whether each capsule learns specific objects: the capsule that is on, compared with the labels."""

import numpy as np
from jaxtyping import Int
from scipy.optimize import linear_sum_assignment

ALIVE = 0.1  # of an equal share of the images: below it a capsule counts as dead

Labels = Int[np.ndarray, " n"]


def contingency(winner: Labels, labels: Labels, groups: int, classes: int) -> Int[np.ndarray, "J K"]:
    """How many images of class k the capsule j has taken."""
    table = np.zeros((groups, classes), np.int64)
    np.add.at(table, (winner, labels), 1)
    return table


def purity(table: Int[np.ndarray, "J K"]) -> float:
    """The share of images whose class is the commonest one of their capsule."""
    return float(table.max(1).sum() / table.sum())


def nmi(table: Int[np.ndarray, "J K"]) -> float:
    """Mutual information of capsule and class over the mean of their entropies: 1 if each tells the other."""
    p = table / table.sum()
    rows, columns = p.sum(1), p.sum(0)
    information = entropy(rows) + entropy(columns) - entropy(p.ravel())
    mean = (entropy(rows) + entropy(columns)) / 2
    return float(max(information, 0.0) / mean) if mean > 0 else 1.0


def entropy(p: np.ndarray) -> float:
    """In nats."""
    positive = p[p > 0]
    return float(-(positive * np.log(positive)).sum())


def one_to_one(table: Int[np.ndarray, "J K"]) -> float:
    """Accuracy when every class is given one capsule of its own, the best way (Hungarian method).

    With more capsules than classes the spare capsules count as wrong.
    """
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def alive(table: Int[np.ndarray, "J K"]) -> int:
    """Capsules that are on for at least a tenth of an equal share of the images."""
    return int((table.sum(1) >= ALIVE * table.sum() / len(table)).sum())


def class_entropy(
    classes_of_samples: Labels, capsule: Labels, groups: int, classes: int
) -> list[float | None]:
    """For each capsule, how spread its samples are over the classes: 0 is one class, 1 all equally."""
    table = contingency(capsule, classes_of_samples, groups, classes)
    largest = np.log(classes) if classes > 1 else 1.0
    return [entropy(row / row.sum()) / largest if row.sum() else None for row in table]


def specialisation(winner: Labels, labels: Labels, groups: int, classes: int) -> dict[str, float | int]:
    """All of the above that compare the winning capsule with labels."""
    table = contingency(winner, labels, groups, classes)
    return {
        "purity": purity(table),
        "nmi": nmi(table),
        "one_to_one": one_to_one(table),
        "alive": alive(table),
        "capsules": groups,
        "classes_covered": len({int(row.argmax()) for row in table if row.sum()}),
    }
