"""Clustering as the field reports it, ten clusters of MNIST: python benchmarks/clustering.py RUN [--seeds 5]

RUN is a finished run on MNIST; its autoencoder gives the codes, and the seeds vary everything after it. Every method
is fitted to the 60,000 training images without labels. ACC (the best one-to-one assignment), NMI and ARI are those of
the training images and, where a method can assign new images, of the test images. UMAP comes with the extra
"benchmark". Every row is saved in benchmarks/records/clustering.json as soon as it is there, and made only once.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture

from capspoe.evaluate.clustering import clustering_scores
from capspoe.evaluate.data import EvaluationData, Split, encode_codes
from capspoe.evaluate.groups import flat
from capspoe.model.network import Network
from capspoe.run.model import CapsulePoE
from capspoe.train.fit import fit_capsules
from capspoe.train.spectral import majority, nearest, pca_points, spectral_groups

RECORD = Path(__file__).parent / "records" / "clustering.json"
CLUSTERS = 10
Found = tuple[np.ndarray, np.ndarray | None]  # the clusters of training and test images


def in_pixels(split: Split) -> np.ndarray:
    return split.pixels.reshape(len(split.pixels), -1) / np.float32(255)


def kmeans(data: EvaluationData, seed: int, pixels: bool) -> Found:
    train, test = (
        (s.pixels.reshape(len(s.pixels), -1) / np.float32(255) if pixels else flat(s))
        for s in (data.train, data.test)
    )
    model = KMeans(CLUSTERS, n_init=3, random_state=seed).fit(train)
    return model.labels_, model.predict(test)


def spectral(data: EvaluationData, seed: int) -> Found:
    k = data.network.config.neighbours
    train = spectral_groups(data.train.codes, CLUSTERS, k, seed)
    points = pca_points(np.concatenate([data.train.codes, data.test.codes]), seed)
    return train, majority(train[nearest(points[len(train) :], points[: len(train)], k)])


def capsules(data: EvaluationData, seed: int) -> Found:
    """A network with ten capsules on the same autoencoder: the winner."""
    network = Network(data.network.config.replace(layers=f"{CLUSTERS}x16", seed=seed), data.network.image)
    network.codec.load_state_dict(data.network.codec.state_dict())
    fit_capsules(network, data.train.codes)
    return tuple(encode_codes(network.eval(), s.codes).on.argmax(1) for s in (data.train, data.test))


def umap_of(rows: np.ndarray, seed: int, **options: float) -> np.ndarray:
    from umap import UMAP  # slow to import

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return UMAP(random_state=seed, min_dist=0.0, **options).fit_transform(rows)


def umap_hdbscan(data: EvaluationData, seed: int) -> Found:
    """The recipe of umap-learn's documentation; unclustered images are a cluster of their own."""
    pixels = PCA(50, random_state=seed).fit_transform(data.train.pixels.reshape(len(data.train.pixels), -1) / 255.0)
    points = umap_of(pixels, seed, n_neighbors=30, n_components=2)
    return HDBSCAN(min_cluster_size=500, min_samples=10).fit_predict(points) + 1, None


def n2d(data: EvaluationData, seed: int) -> Found:
    """Autoencoder, UMAP and a mixture of Gaussians (McConville et al. 2020), on our codes."""
    codes = PCA(50, random_state=seed).fit_transform(flat(data.train))
    points = umap_of(codes, seed, n_neighbors=20, n_components=CLUSTERS)
    return GaussianMixture(CLUSTERS, random_state=seed).fit_predict(points), None


METHODS: dict[str, Callable[[EvaluationData, int], Found]] = {
    "k-means on pixels": partial(kmeans, pixels=True),
    "k-means on the codes": partial(kmeans, pixels=False),
    "spectral groups of the codes": spectral,
    "capspoe, ten capsules": capsules,
    "UMAP + HDBSCAN on pixels": umap_hdbscan,
    "codes + UMAP + mixture (N2D)": n2d,
}


def scores(found: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    accuracy = clustering_scores(found, labels, int(found.max()) + 1, 10)["one_to_one"]
    nmi, ari = (score(labels, found) for score in (normalized_mutual_info_score, adjusted_rand_score))
    return {name: round(float(v), 4) for name, v in {"acc": accuracy, "nmi": nmi, "ari": ari}.items()}


def main(run: Path, seeds: int) -> None:
    data = EvaluationData(CapsulePoE.load(run))
    rows = json.loads(RECORD.read_text()) if RECORD.exists() else []
    for name, method in METHODS.items():
        for seed in range(seeds):
            if any((row["method"], row["seed"]) == (name, seed) for row in rows):
                continue
            began = time.monotonic()
            train, test = method(data, seed)
            row = {"method": name, "seed": seed, "train": scores(train, data.train.labels)}
            row["test"] = None if test is None else scores(test, data.test.labels)
            rows.append(row | {"seconds": round(time.monotonic() - began)})
            RECORD.write_text(json.dumps(rows, indent=1) + "\n")
            print(json.dumps(rows[-1]), flush=True)
    for name in METHODS:
        own = [row for row in rows if row["method"] == name]
        print(name, {k: round(mean(row["train"][k] for row in own), 3) for k in ("acc", "nmi", "ari")})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.run, arguments.seeds)
