"""Measure which learning rate suits a larger batch in stage 2.

    python -m benchmarks.quality.batch_size RUN [--images 60000]

RUN is a finished run; its autoencoder gives the codes of the first images. Trains the capsules on them for the same
number of epochs with batches of 128, of 512 with the same learning rate, 2 times it (square root) and 4 times it
(linear), and of 1,024 with 8 times it. Scores on 2,000 test images: the mean squared error of a pixel through one
capsule, and purity.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks import records
from capspoe import CapsulePoE, data
from capspoe.evaluate import variant
from capspoe.evaluate.clustering import clustering_scores
from capspoe.figures.summary import reconstruction_error
from capspoe.model.network import Network
from capspoe.training.codes import codes_in_memory

RECORD = "batch_size"
DEPENDS = (*records.TRAINING, "evaluate")
BATCHES = ((128, 1), (512, 1), (512, 2), (512, 4), (1024, 8))  # batch size, factor of the learning rate
TEST_IMAGES = 2000


@torch.no_grad()
def scores(network: Network, test: data.Images) -> dict[str, float]:
    errors = []
    winners = []
    for x in network.chunks(test.pixels[:TEST_IMAGES]):
        up = network.up(x)
        errors.append(reconstruction_error(network, x, up))
        winners.append(up.winner.numpy())
    labels = test.labels[:TEST_IMAGES]
    classes = int(labels.max()) + 1
    clustering = clustering_scores(np.concatenate(winners), labels, network.top.upper[0], classes)
    error = float(np.concatenate(errors).mean())
    return {"error": round(error, 5), "purity": round(clustering["purity"], 3)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args(arguments)
    model = CapsulePoE.load(options.run)
    codes = codes_in_memory(model, data.load(model.config.data, "train").pixels[: options.images])
    test = data.load(model.config.data, "test")
    rows = []
    for batch_size, factor in BATCHES:
        rate = factor * model.config.learning_rate
        settings = {"batch_size": batch_size, "learning_rate": rate, "epochs": options.epochs, "min_steps": 0}
        network = variant(model, codes, **settings)
        row = {"batch_size": batch_size, "learning_rate": rate, **scores(network, test)}
        row |= {"images": options.images, "epochs": options.epochs}
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(records.write(RECORD, rows, DEPENDS))


if __name__ == "__main__":
    main()
