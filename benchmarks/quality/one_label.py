"""Measure how far one label for each capsule goes.

    python -m benchmarks.quality.one_label RUN ...

A person looks at one training image of each capsule, the one that the network is most certain of, and names it. The
accuracy is that of the test images, which take the name of their capsule: twenty labels for twenty capsules.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import records
from capspoe import CapsulePoE, data

DEPENDS = records.TRAINING


def most_certain(on: np.ndarray) -> np.ndarray:
    """The image of each capsule for which it is on with the highest probability, from P(on) (n, J)."""
    winner = on.argmax(1)
    certainty = np.where(winner[:, None] == np.arange(on.shape[1]), on, -1)
    return certainty.argmax(0)


def accuracy(model: CapsulePoE, train: data.Images, test: data.Images) -> float:
    """The share of test images whose capsule has their name."""
    names = train.labels[most_certain(model.encode(train.pixels).on)]
    winner = model.encode(test.pixels).on.argmax(1)
    return float((names[winner] == test.labels).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    options = parser.parse_args(arguments)
    rows = []
    for run in options.runs:
        model = CapsulePoE.load(run)
        name = model.config.data
        right = accuracy(model, data.load(name, "train"), data.load(name, "test"))
        labels = model.top.upper[0]
        rows.append({"data": name, "seed": model.config.seed, "labels": labels, "accuracy": round(right, 4)})
        print(json.dumps(rows[-1]), flush=True)
    records.write("one_label", rows, DEPENDS)


if __name__ == "__main__":
    main()
