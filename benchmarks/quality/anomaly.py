"""Measure how well the likelihood separates odd images from usual ones.

    python -m benchmarks.quality.anomaly RUN ... [--count 2000]

The AUROC of test images of the run's data set against those of another set, and against the same images with permuted
pixels. The record has a row for each run, with both estimates of log Z.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from benchmarks import records
from capspoe import kernels
from capspoe.data import load
from capspoe.infer.likelihood import Scores
from capspoe.run.model import CapsulePoE

RECORD = "anomaly"
DEPENDS = (*records.TRAINING, "infer")
OTHER_SET = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
PCA_IMAGES = 10_000
PCA_COMPONENTS = 64


def flat(pixels: np.ndarray) -> np.ndarray:
    """Images as rows of numbers in [0, 1]."""
    return pixels.reshape(len(pixels), -1) / np.float32(255)


def mean_squared_error(reconstructed: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Of each row."""
    return np.square(reconstructed - images).mean(1)


def typicality_scores(model: CapsulePoE, pca: PCA, usual: Scores, pixels: np.ndarray) -> dict[str, np.ndarray]:
    """Several scores of each image, all of them larger for more typical images."""
    likelihood = model.score(pixels)
    images = flat(pixels)
    by_autoencoder = model.reconstruct(pixels, "autoencoder").reshape(images.shape)
    by_pca = pca.inverse_transform(pca.transform(images))
    return {
        "typicality": likelihood.weaker(usual),
        "score": likelihood.total,
        "likelihood of the code": likelihood.code,
        "likelihood of the pixels given the code": likelihood.pixels,
        "error of the capsules": -likelihood.error,
        "error of the autoencoder": -mean_squared_error(by_autoencoder, images),
        "error of PCA": -mean_squared_error(by_pca, images),
    }


def auroc(usual: np.ndarray, odd: np.ndarray) -> float:
    is_usual = np.repeat([1, 0], [len(usual), len(odd)])
    return round(float(roc_auc_score(is_usual, np.concatenate([usual, odd]))), 4)


def measure(run: Path, count: int) -> dict[str, Any]:
    model = CapsulePoE.load(run).requires_grad_(False)
    name = model.config.data
    train = load(name, "train").pixels
    test = load(name, "test").pixels[:count]
    order = np.random.default_rng(model.config.seed).permutation(test[0].size)
    odd_sets = {
        OTHER_SET[name]: load(OTHER_SET[name], "test").pixels[:count],
        "permuted pixels": test.reshape(count, -1)[:, order].reshape(test.shape),
    }
    pca = PCA(PCA_COMPONENTS, random_state=0).fit(flat(train[:PCA_IMAGES]))
    usual = model.score(train[-count:])
    own_scores = typicality_scores(model, pca, usual, test)
    areas: dict[str, dict[str, float]] = {method: {} for method in own_scores}
    for odd_set, pixels in odd_sets.items():
        odd_scores = typicality_scores(model, pca, usual, pixels)
        for method, own in own_scores.items():
            areas[method][odd_set] = auroc(own, odd_scores[method])
    return {
        "data": name,
        "seed": model.config.seed,
        "images": count,
        "auroc": areas,
        "log_z": {"lower": round(usual.log_z.lower, 2), "upper": round(usual.log_z.upper, 2)},
        "gaps": np.array(usual.log_z.gaps).round(2).tolist(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--count", type=int, default=2000, help="images of each set")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for run in options.runs:
        with kernels.use("reference"):
            row = measure(run, options.count)
        print(row, flush=True)
        others = [
            other
            for other in records.read(RECORD, default=[])
            if (other["data"], other["seed"]) != (row["data"], row["seed"])
        ]
        records.write(RECORD, [*others, row], DEPENDS, extends=True)


if __name__ == "__main__":
    main()
