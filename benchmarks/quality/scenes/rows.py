"""The rows of the tables in docs/scenes.md: a kind of scene, and who explains it."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from benchmarks.quality.scenes.baselines import by_groups, by_nearest_pair, by_nmf
from benchmarks.quality.scenes.bench import Bench
from benchmarks.quality.scenes.capsules import (
    by_changed_search,
    by_gate,
    by_recognition,
    by_search,
    by_search_alone,
    routed_start,
    told_the_capsules,
)
from benchmarks.quality.scenes.code_space import assigned_start, by_assignment, by_composed_codes
from benchmarks.quality.scenes.data import Answer, Kind, Scenes
from benchmarks.quality.scenes.search import SoftMaximum
from benchmarks.quality.scenes.supervised import by_network

MANY = 1_000  # scenes of the main rows
FEW = 300  # of all others


class Row(NamedTuple):
    """A row of a table."""

    name: str
    kind: Kind
    answer: Callable[[Bench, Scenes], Answer]
    count: int = FEW
    data: str = "mnist"


SUPERPOSED = (
    Row("search", "superposed", by_search, MANY),
    Row("search alone", "superposed", by_search_alone, MANY),
    Row("recognition network", "superposed", by_recognition, MANY),
    Row("gate's two best", "superposed", by_gate, MANY),
    Row("gate's two best, no routing", "superposed", partial(by_gate, iterations=1), MANY),
    Row("gate's two best, routing over upper capsules", "superposed", partial(by_gate, normalize="upper"), MANY),
    Row("spectral groups + PCA, same search", "superposed", by_groups),
    Row("spectral groups + PCA, search alone", "superposed", partial(by_groups, recognition=False)),
    Row("told the capsules", "superposed", told_the_capsules),
    Row("nearest pair of 2,000 images", "superposed", by_nearest_pair),
    Row("codes composed", "superposed", by_composed_codes),
    Row("spectral groups + NMF", "superposed", by_nmf),
    Row("supervised network", "superposed", by_network),
    Row("supervised capsules", "superposed", partial(by_network, capsules=True)),
    Row("assignment energy", "superposed", by_assignment),
)
CHANGED_SEARCH = (
    Row("as it is", "superposed", by_changed_search),
    Row("soft maximum", "superposed", partial(by_changed_search, composition=SoftMaximum())),
    Row("starts by assignment", "superposed", partial(by_changed_search, start=assigned_start)),
    Row(
        "starts by routing",
        "superposed",
        partial(by_changed_search, start=partial(routed_start, iterations=3)),
    ),
    Row(
        "starts without routing",
        "superposed",
        partial(by_changed_search, start=partial(routed_start, iterations=1)),
    ),
)
SHIFTED = (
    Row("shifted, gate", "shifted", by_gate),
    Row("shifted, recognition network", "shifted", by_recognition),
    Row("shifted, search", "shifted", by_search),
    Row("shifted, search with shift", "shifted", partial(by_search, shift=2.0)),
)
THREE = (
    Row("three, gate", "three", by_gate),
    Row("three, recognition network", "three", by_recognition),
    Row("three, search", "three", by_search),
)
DAMAGED = (
    Row("hole, gate", "hole", by_gate),
    Row("hole, search alone", "hole", by_search_alone),
    Row("hole, recognition network", "hole", by_recognition),
    Row("hole, search", "hole", by_search),
    Row("missing side, gate", "missing side", by_gate),
    Row("missing side, search alone", "missing side", by_search_alone),
    Row("missing side, recognition network", "missing side", by_recognition),
    Row("missing side, search", "missing side", by_search),
    Row("fragments, gate", "fragments", by_gate),
    Row("fragments, search alone", "fragments", by_search_alone),
    Row("fragments, recognition network", "fragments", by_recognition),
    Row("fragments, search", "fragments", by_search),
)
OCCLUDED = (
    Row("occluded, gate", "occluded", by_gate, data="fashion-mnist"),
    Row("occluded, recognition network", "occluded", by_recognition, data="fashion-mnist"),
    Row(
        "occluded, search alone",
        "occluded",
        partial(by_search_alone, compose="occlusion"),
        data="fashion-mnist",
    ),
    Row("occluded, search", "occluded", partial(by_search, compose="occlusion"), data="fashion-mnist"),
)
ROWS = (*SUPERPOSED, *CHANGED_SEARCH, *SHIFTED, *THREE, *DAMAGED, *OCCLUDED)
