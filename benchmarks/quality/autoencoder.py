"""Measure what each choice of stage 1 is worth.

    python -m benchmarks.quality.autoencoder [DATA ...] [--variants NAME ...]

Trains the autoencoder alone, with the settings of the data set and with one of them changed at a time, and scores its
reconstructions of 2,000 training images. CPU time is that of one thread. Rows that the record has are skipped.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks import records
from capspoe.config import Config, preset
from capspoe.data import evenly_spaced
from capspoe.evaluate.data import EvaluationData
from capspoe.run.model import CapsulePoE
from capspoe.run.train import image_shape, open_images
from capspoe.threads import use_threads
from capspoe.training.build import codec_stage
from capspoe.training.codes import codes_in_memory
from capspoe.training.fit import run_stages
from capspoe.training.stage import Training

RECORD = "autoencoder"
DEPENDS = ("config.py", "data", "model", "training/codec_stage.py", "evaluate")
IMAGES = 2000  # that are reconstructed
VERSION_1: dict[str, Any] = {
    "autoencoder_epochs": 3,
    "autoencoder_batch_size": 128,
    "autoencoder_learning_rate": 2e-3,
    "code_noise": 1.0,
    "dropout": 0.1,
    "upsampling": "mirrored",
    "edge_weight": 0.0,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "the preset": {},
    "as in version 0.1": VERSION_1,
    "the paper's kernel": {"upsampling": "mirrored"},
    "cross-entropy alone": {"edge_weight": 0.0},
    "noise 1 and dropout .1": {"code_noise": 1.0, "dropout": 0.1},
    "noise .5, no dropout": {"code_noise": 0.5, "dropout": 0.0},
    "one epoch": {"autoencoder_epochs": 1},
    "batches of 128": {"autoencoder_batch_size": 128},
}


def measure(config: Config) -> dict[str, float]:
    """Train the autoencoder of these settings, and score its reconstructions."""
    images = open_images(config)
    network = CapsulePoE.build(config, image_shape(config, images))
    training = Training(network, images, lambda: codes_in_memory(network, images.images().pixels))
    stage = codec_stage(config)
    network.train()
    began = time.process_time()
    run_stages(training, [stage])
    seconds = time.process_time() - began
    network.eval()

    data = EvaluationData(network, IMAGES)
    some = data.train.pixels[evenly_spaced(len(data.train.pixels), IMAGES)]
    decoded = network.reconstruct(some, "autoencoder")
    error = float(np.square(decoded - some / np.float32(255)).mean())
    scores = data.generation(decoded)
    return {
        "steps": stage.steps(len(images)),
        "cpu_seconds": round(seconds),
        "error": round(error, 5),
        "fid": round(scores["fid"], 2),
        "recall": round(scores["recall"], 3),
        "grid": round(scores["grid"], 4),
        "grid_of_images": round(data.generation(some)["grid"], 4),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=["fashion-mnist", "mnist", "cifar10"], metavar="DATA")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS), metavar="NAME")
    options = parser.parse_args(arguments)
    use_threads(1)
    for name in options.data:
        for variant in options.variants:
            usual = preset(data=name)
            config = usual.replace(**VARIANTS[variant])
            if variant == "the preset" or config != usual:
                key = {"data": name, "variant": variant}
                records.add_row(RECORD, key, partial(measure, config), DEPENDS)


if __name__ == "__main__":
    main()
