"""Measure clustering as the field reports it: as many clusters as classes, of MNIST or Fashion-MNIST.

    python -m benchmarks.quality.clustering RUN [--seeds 3] [--only METHOD ...]

RUN is a finished run; its autoencoder gives the codes, and the seeds vary everything after it. Every method is
fitted to the training images without labels. ACC (the best one-to-one assignment), NMI and ARI are those of the
training images and, where a method can assign new images, of the test images. UMAP comes with the extra "benchmark".
Every row is saved in the record clustering-DATA as soon as it is measured; rows that are on record are skipped.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

from benchmarks import records
from capspoe.evaluate.clustering import clustering_scores
from capspoe.evaluate.data import EvaluationData, Split
from capspoe.run.model import CapsulePoE
from capspoe.training.build import build_stages
from capspoe.training.fit import fit
from capspoe.training.recognition import RecognitionStage
from capspoe.training.spectral import majority, nearest, pca_points, spectral_groups
from capspoe.training.views import find_view

DEPENDS = (*records.TRAINING, "evaluate")
CLUSTERS = 10


class Clusters(NamedTuple):
    """The cluster of every training and of every test image; None if a method cannot assign new images."""

    train: np.ndarray
    test: np.ndarray | None


def flat_pixels(split: Split) -> np.ndarray:
    return split.pixels.reshape(len(split.pixels), -1) / np.float32(255)


def flat_codes(split: Split) -> np.ndarray:
    return split.codes.reshape(len(split.codes), -1).astype(np.float32)


def kmeans(data: EvaluationData, seed: int, view: Callable[[Split], np.ndarray]) -> Clusters:
    model = KMeans(CLUSTERS, n_init=3, random_state=seed).fit(view(data.train))
    return Clusters(model.labels_, model.predict(view(data.test)))


def spectral(data: EvaluationData, seed: int) -> Clusters:
    """Spectral groups of the codes; a test image gets the majority of its nearest training images."""
    return spectral_clusters(data, seed, data.train.codes, data.test.codes)


def spectral_by_view(data: EvaluationData, seed: int) -> Clusters:
    """Spectral groups in the view that suits the images, as `capspoe train` finds them."""
    view = find_view("auto", data.train.pixels, data.network.config.neighbours, seed)
    return spectral_clusters(data, seed, view.points(data.train.pixels), view.points(data.test.pixels))


def spectral_clusters(data: EvaluationData, seed: int, train_points: np.ndarray, test_points: np.ndarray) -> Clusters:
    neighbours = data.network.config.neighbours
    train = spectral_groups(train_points, CLUSTERS, neighbours, seed)
    known = pca_points(train_points, seed)
    new = pca_points(test_points, seed, fitted_to=train_points)
    return Clusters(train, majority(train[nearest(new, known, neighbours)]))


def capsules(data: EvaluationData, seed: int) -> Clusters:
    """The winner in a network with ten capsules.

    P(on) is the recognition network's, which learns the gate's targets from the images. Neither the autoencoder nor
    the energy takes part in it, so they are not trained here.
    """
    config = data.network.config.replace(layers=f"{CLUSTERS}x16", seed=seed)
    network = CapsulePoE.build(config, data.network.image)
    stages = [stage for stage in build_stages(config, network) if isinstance(stage, RecognitionStage)]
    fit(network, data.train.pixels, stages)
    return Clusters(winners(network, data.train), winners(network, data.test))


def winners(network: CapsulePoE, split: Split) -> np.ndarray:
    return network.encode(split.pixels).on.argmax(1)


def umap_embedding(rows: np.ndarray, seed: int, **options: float) -> np.ndarray:
    from umap import UMAP  # of the extra "benchmark"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return UMAP(random_state=seed, min_dist=0.0, **options).fit_transform(rows)


def umap_hdbscan(data: EvaluationData, seed: int) -> Clusters:
    """The recipe of umap-learn's documentation; unclustered images are a cluster of their own."""
    pixels = PCA(50, random_state=seed).fit_transform(flat_pixels(data.train))
    points = umap_embedding(pixels, seed, n_neighbors=30, n_components=2)
    cluster = HDBSCAN(min_cluster_size=500, min_samples=10).fit_predict(points)
    return Clusters(cluster + 1, None)  # -1 is unclustered


def n2d(data: EvaluationData, seed: int) -> Clusters:
    """Autoencoder, UMAP and a mixture of Gaussians (McConville et al. 2020), on our codes."""
    codes = PCA(50, random_state=seed).fit_transform(flat_codes(data.train))
    points = umap_embedding(codes, seed, n_neighbors=20, n_components=CLUSTERS)
    return Clusters(GaussianMixture(CLUSTERS, random_state=seed).fit_predict(points), None)


METHODS: dict[str, Callable[[EvaluationData, int], Clusters]] = {
    "k-means on pixels": partial(kmeans, view=flat_pixels),
    "k-means on the codes": partial(kmeans, view=flat_codes),
    "spectral groups of the codes": spectral,
    "spectral groups by view": spectral_by_view,
    "capspoe, ten capsules": capsules,
    "UMAP + HDBSCAN on pixels": umap_hdbscan,
    "codes + UMAP + mixture (N2D)": n2d,
}


def scores(cluster: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    accuracy = clustering_scores(cluster, labels, int(cluster.max()) + 1, 10)["one_to_one"]
    nmi = normalized_mutual_info_score(labels, cluster)
    ari = adjusted_rand_score(labels, cluster)
    return {"acc": round(float(accuracy), 4), "nmi": round(float(nmi), 4), "ari": round(float(ari), 4)}


def measure(data: EvaluationData, method: str, seed: int) -> dict[str, Any]:
    began = time.monotonic()
    clusters = METHODS[method](data, seed)
    test_scores = None
    if clusters.test is not None:
        test_scores = scores(clusters.test, data.test.labels)
    return {
        "method": method,
        "seed": seed,
        "train": scores(clusters.train, data.train.labels),
        "test": test_scores,
        "seconds": round(time.monotonic() - began),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="METHOD", choices=METHODS, default=list(METHODS))
    options = parser.parse_args(arguments)
    data = EvaluationData(CapsulePoE.load(options.run))
    record = f"clustering-{data.network.config.data}"
    rows = records.read(record, default=[])
    for method in options.only:
        for seed in range(options.seeds):
            if any(row["method"] == method and row["seed"] == seed for row in rows):
                continue
            rows.append(measure(data, method, seed))
            records.write(record, rows, DEPENDS, extends=True)
            print(json.dumps(rows[-1]), flush=True)
    for method in options.only:
        own = [row["train"] for row in rows if row["method"] == method]
        means = {score: round(mean(row[score] for row in own), 3) for score in ("acc", "nmi", "ari")}
        print(method, means)


if __name__ == "__main__":
    main()
