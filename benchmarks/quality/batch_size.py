"""Which learning rate suits a larger batch in stage 2: python benchmarks/batch_size.py RUN [--images 60000]

RUN is a finished run; its autoencoder gives the codes of the first images. Trains the capsules on them for the same
number of epochs with batches of 128, of 512 with the same learning rate, 2 times it (square root) and 4 times it
(linear), and of 1,024 with 8 times it. Scores on 2,000 test images: the mean squared error of a pixel through one
capsule, and purity. Writes benchmarks/records/batch_size.json.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from capspoe import CapsulePoE, __version__, data
from capspoe.evaluate.clustering import clustering_scores
from capspoe.figures.summary import reconstruction_error
from capspoe.model.network import Network
from capspoe.train.codes import codes_in_memory
from capspoe.train.fit import fit_capsules

RECORD = Path(__file__).parent / "records" / "batch_size.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=10)
    a = parser.parse_args()
    old = CapsulePoE.load(a.run)
    codes = codes_in_memory(old, data.load(old.config.data, "train").pixels[: a.images])
    pixels, labels = (part[:2000] for part in data.load(old.config.data, "test"))
    rows = []
    for batch, factor in ((128, 1), (512, 1), (512, 2), (512, 4), (1024, 8)):
        rate = factor * old.config.learning_rate
        config = old.config.replace(batch_size=batch, learning_rate=rate, epochs=a.epochs, min_steps=0)
        network = Network(config, old.image)
        network.codec.load_state_dict(old.codec.state_dict())
        fit_capsules(network, codes)
        network.eval()
        with torch.no_grad():
            ups = [(x, network.up(x)) for x in network.chunks(pixels)]
            error = np.concatenate([reconstruction_error(network, x, up) for x, up in ups]).mean()
        winner = np.concatenate([up.winner.numpy() for _, up in ups])
        purity = clustering_scores(winner, labels, network.top.upper[0], 10)["purity"]
        row = {
            "batch_size": batch,
            "learning_rate": rate,
            "error": round(float(error), 5),
            "purity": round(purity, 3),
        }
        rows.append(row | {"images": a.images, "epochs": a.epochs, "capspoe": __version__})
        print(json.dumps(rows[-1]), flush=True)
    RECORD.write_text("[\n " + ",\n ".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
