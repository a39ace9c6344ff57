"""Draw the figure of docs/scenes.md: pairs of test digits, and the two objects that are found in each.

python -m benchmarks.pages.scenes_figure RUN [--seed 0] [--out docs/figures/pairs.png]
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.quality.scenes.bench import Bench
from benchmarks.quality.scenes.capsules import by_search
from benchmarks.quality.scenes.data import Answer, Scenes, best_order, make_scenes
from capspoe import kernels
from capspoe.figures.explanation import tinted
from capspoe.figures.sheet import Row, draw_rows, write

PAIRS = 10


def all_tinted(images: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Images (n, H, W, C) in the colours of the objects that their pixels belong to; owners are (n, 2, H, W)."""
    return np.stack([tinted(image, owner) for image, owner in zip(images, owners, strict=True)])


def draw_pairs(scenes: Scenes, answer: Answer) -> Figure:
    """What is seen, what is found, and what was written."""
    n, H, W, _ = scenes.images.shape
    images = scenes.images / 255
    truth = scenes.objects / 255
    # The true objects in the order of those that were found, so that they get the same colours.
    order, _ = best_order(truth, answer.objects)
    truth = truth[np.arange(n)[:, None], order]
    all_of_first = np.broadcast_to([[[1.0]], [[0.0]]], (n, 2, H, W))
    all_of_second = np.broadcast_to([[[0.0]], [[1.0]]], (n, 2, H, W))
    first = all_tinted(answer.objects[:, 0], all_of_first)
    second = all_tinted(answer.objects[:, 1], all_of_second)
    true_first = all_tinted(truth[:, 0], all_of_first)
    true_second = all_tinted(truth[:, 1], all_of_second)
    marks = []
    for labels, true_labels in zip(answer.labels, scenes.labels, strict=True):
        mark = " and ".join(map(str, labels))
        if sorted(labels) != sorted(true_labels):
            mark += " (wrong)"
        marks.append(mark)
    rows = [
        Row("seen", [np.repeat(images, 3, -1)], "two test digits"),
        Row("found", [all_tinted(images, answer.owner)], "pixels by object", marks),
        Row("one", [first], "decoded alone"),
        Row("the other", [second], "decoded alone"),
        Row("written", [np.maximum(true_first, true_second)], "the truth"),
    ]
    words = (
        "Capsules trained without labels on single digits; none saw two at once. "
        "The first ten pairs for this seed, not cherry-picked."
    )
    return draw_rows("Two digits at once, pulled apart", words, rows, 84)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the pairs")
    parser.add_argument("--out", type=Path, default=Path("docs/figures/pairs.png"))
    options = parser.parse_args(arguments)
    # So few images are explained before the kernels would be compiled.
    with kernels.use("reference"):
        bench = Bench(options.run, options.seed)
        scenes = make_scenes(bench.test, "superposed", PAIRS, options.seed)
        write(draw_pairs(scenes, by_search(bench, scenes)), options.out)
    print(options.out)


if __name__ == "__main__":
    main()
