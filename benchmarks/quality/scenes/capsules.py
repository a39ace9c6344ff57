"""Answers of the capsules: the gate, the recognition network, and the search."""

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.quality.scenes.bench import Bench
from benchmarks.quality.scenes.data import Answer, Scenes
from benchmarks.quality.scenes.search import explain_by, fit_poses
from capspoe.infer.explain import MAXIMUM, Composition, Decode, Explanation, Search, decoders_of

NINE = 9  # capsules that the gate proposes


def objects_in(scenes: Scenes) -> int:
    return scenes.objects.shape[1]


def answer_of(bench: Bench, explanation: Explanation) -> Answer:
    return Answer(bench.names[explanation.capsule], explanation.objects, explanation.owner)


def by_gate(bench: Bench, scenes: Scenes, normalize: str = "lower", iterations: int | None = None) -> Answer:
    """The most probable capsules of the gate, and the labels of its nine best."""
    on, _ = bench.route(scenes.images, normalize, iterations)
    labels = bench.names[on.argsort(1, descending=True).numpy()]
    return Answer(labels[:, : objects_in(scenes)], proposed=labels[:, :NINE])


def by_recognition(bench: Bench, scenes: Scenes) -> Answer:
    """The most probable set of capsules by the recognition network, and the labels of its nine best capsules."""
    recognised = bench.recognise(bench.tensor(scenes.images))
    sets = torch.combinations(torch.arange(bench.shape[0]), objects_in(scenes))
    value = recognised.support(sets.expand(len(scenes.images), -1, -1))
    best = sets[value.argmax(1)].numpy()
    by_odds = recognised.log_odds.argsort(1, descending=True).numpy()
    return Answer(bench.names[best], proposed=bench.names[by_odds[:, :NINE]])


def by_search(bench: Bench, scenes: Scenes, compose: str = "maximum", shift: float = 0.0) -> Answer:
    """The search with the recognition network, as users get it."""
    explanation = bench.model.explain(scenes.images, objects_in(scenes), compose, shift)
    return answer_of(bench, explanation)


def by_search_alone(bench: Bench, scenes: Scenes, compose: str = "maximum") -> Answer:
    """The search without the recognition network."""
    recognition = bench.model.recognition
    bench.model.recognition = None
    try:
        return by_search(bench, scenes, compose)
    finally:
        bench.model.recognition = recognition


def by_changed_search(
    bench: Bench,
    scenes: Scenes,
    composition: Composition = MAXIMUM,
    start: Callable[[Bench, Tensor], Tensor] | None = None,
) -> Answer:
    """The search with another composition, or with poses that `start` gives instead of the usual ones."""
    search = Search()
    if start is not None:

        def poses(decode: Decode, shape: tuple[int, int], images: Tensor) -> Tensor:
            return start(bench, images)

        search = Search(start=poses)
    x = bench.tensor(scenes.images)
    decoders = decoders_of(bench.model)
    explanation = explain_by(decoders, x, objects_in(scenes), bench.recognise(x), composition, search)
    return answer_of(bench, explanation)


def routed_start(bench: Bench, x: Tensor, iterations: int) -> Tensor:
    """Proposals start at the mean and at the pose that routing of the scene gives each capsule."""
    _, z = bench.route(bench.model.array(x), "lower", iterations)
    return bench.starts(z)


def told_the_capsules(bench: Bench, scenes: Scenes) -> Answer:
    """Told the capsules that the gate gives for each object alone; only the poses are searched."""
    n, k, *image = scenes.objects.shape
    on = bench.model.encode(scenes.objects.reshape(n * k, *image)).on.argmax(1)
    capsule = torch.from_numpy(on.reshape(n, k))
    x = bench.tensor(scenes.images)
    return answer_of(bench, fit_poses(decoders_of(bench.model), x, capsule))
