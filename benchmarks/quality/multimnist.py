"""Measure MultiMNIST (Sabour et al. 2017) without labels.

    python -m benchmarks.quality.multimnist [--count 1000] [--seed 0]

Two test digits of different classes lie on a canvas of 36x36 pixels, each moved by up to four pixels in each
direction. (The authors say that their boxes overlap by 80% on average. For boxes of 20x20 pixels it is 73%.) The
network is trained on single training digits in the middle of such a canvas; its recognition network sees up to three
of them at once, moved by up to four pixels. It goes to runs/multimnist-SEED, and a run that is there is used. Labels
only name the capsules, and score the answers.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import records
from benchmarks.quality.scenes.bench import NAMED, most_common_labels
from benchmarks.quality.scenes.data import Answer, Scenes, all_moved, different, score
from capspoe import CapsulePoE, data, train
from capspoe.infer.explain import Search, explain

DEPENDS = (*records.TRAINING, "infer")
MARGIN = 4  # pixels around a digit, and the farthest that it moves
SETTINGS = {"recognition_shift": MARGIN + 0.5, "recognition_steps": 6000}


def on_canvas(pixels: np.ndarray) -> np.ndarray:
    """Images (n, 28, 28, C) in the middle of 36x36 pixels."""
    return np.pad(pixels, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)))


def multimnist(images: data.Images, count: int, seed: int) -> Scenes:
    """Pairs of different digits, each moved by itself; the brighter pixel counts."""
    rng = np.random.default_rng([seed, 36])
    index = different(rng, images.labels, len(images.pixels), (count, 2))
    singles = on_canvas(images.pixels[index.ravel()])
    objects = all_moved(rng, singles.reshape(count, 2, *singles.shape[1:]), MARGIN)
    return Scenes(objects.max(1), objects, images.labels[index])


def overlap(rng: np.random.Generator, pairs: int = 100_000) -> float:
    """The mean share of a 20x20 box that the other box covers."""
    moves = rng.integers(-MARGIN, MARGIN + 1, (pairs, 2, 2))
    sides = 20 - np.abs(moves[:, 0] - moves[:, 1])
    return float(sides.prod(1).mean() / 400)


def names_of(model: CapsulePoE, images: data.Images) -> np.ndarray:
    """The most common label of the training images for which each capsule is on."""
    on = model.encode(on_canvas(images.pixels[:NAMED])).on.argmax(1)
    return most_common_labels(on, images.labels[:NAMED], model.top.upper[0])


def recognised_pairs(model: CapsulePoE, scenes: Scenes) -> np.ndarray:
    """The most probable pair of capsules by the recognition network alone, (n, 2)."""
    pairs = torch.combinations(torch.arange(model.top.upper[0]), 2)
    best = []
    for chunk in model.chunks(scenes.images):
        support = model.recognition(chunk).support(pairs.expand(len(chunk), -1, -1))
        best.append(pairs[support.argmax(1)].numpy())
    return np.concatenate(best)


@torch.no_grad()
def measure(model: CapsulePoE, count: int, seed: int) -> dict[str, float]:
    """The scores of the search, and how often the recognition network alone has both labels right."""
    names = names_of(model, data.load("mnist", "train"))
    scenes = multimnist(data.load("mnist", "test"), count, seed)
    alone = np.sort(names[recognised_pairs(model, scenes)], 1)
    explanation = explain(model, scenes.images, 2, "maximum", Search(shift=float(MARGIN)))
    scores = score(scenes, Answer(names[explanation.capsule], explanation.objects, explanation.owner))
    scores["recognition alone"] = float((alone == np.sort(scenes.labels, 1)).all(1).mean())
    scores["psnr"] = -10 * math.log10(scores["error"])
    return {name: round(value, 4) for name, value in scores.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="pairs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    run = Path("runs") / f"multimnist-{options.seed}"
    digits = on_canvas(data.load("mnist", "train").pixels)
    train(digits, run, seed=options.seed, **SETTINGS)
    row = {"seed": options.seed, "pairs": options.count, "overlap": round(overlap(np.random.default_rng(0)), 3)}
    row |= measure(CapsulePoE.load(run), options.count, options.seed)
    rows = [old for old in records.read("multimnist", default=[]) if old["seed"] != options.seed]
    records.write("multimnist", sorted([*rows, row], key=lambda row: row["seed"]), DEPENDS, extends=True)
    print(json.dumps(row))


if __name__ == "__main__":
    main()
