"""Odd images found by their likelihood: python benchmarks/anomaly.py RUN ... [--count 2000]

Test images of the run's data against those of another set, and against the same images with their pixels permuted, by
AUROC. benchmarks/records/anomaly.json has a row for each run, with both estimates of log Z.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score

from capspoe import kernels
from capspoe.data import load
from capspoe.run.model import CapsulePoE

PATH = Path(__file__).parent / "records" / "anomaly.json"
OTHER = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}
FITTED, COMPONENTS = 10_000, 64  # training images and components of PCA


def measured(run: Path, count: int) -> dict:
    model = CapsulePoE.load(run).requires_grad_(False)
    name = model.config.data
    own = load(name, "test").pixels[:count]
    order = np.random.default_rng(model.config.seed).permutation(own[0].size)
    permuted = own.reshape(count, -1)[:, order].reshape(own.shape)
    sets = {"own": own, OTHER[name]: load(OTHER[name], "test").pixels[:count], "permuted pixels": permuted}
    train = load(name, "train").pixels[:FITTED].reshape(FITTED, -1) / np.float32(255)
    pca = PCA(COMPONENTS, random_state=0).fit(train)
    usual = model.score(load(name, "train").pixels[-count:])
    scores: dict[str, dict[str, np.ndarray]] = {}
    for kind, pixels in sets.items():
        found, images = model.score(pixels), pixels / np.float32(255)
        flat = images.reshape(count, -1)
        scores[kind] = {
            "typicality": found.weaker(usual),
            "score": found.total,
            "likelihood of the code": found.code,
            "likelihood of the pixels given the code": found.pixels,
            "error of the capsules": -found.error,
            "error of the autoencoder": -np.square(model.reconstruct(pixels, "autoencoder") - images).mean((1, 2, 3)),
            "error of PCA": -np.square(pca.inverse_transform(pca.transform(flat)) - flat).mean(1),
        }
    truth = np.repeat([1, 0], count)
    auroc = {
        method: {
            kind: round(float(roc_auc_score(truth, np.concatenate([own_scores, scores[kind][method]]))), 4)
            for kind in list(sets)[1:]
        }
        for method, own_scores in scores["own"].items()
    }
    gaps = np.array(found.log_z.gaps)
    log_z = {"lower": round(found.log_z.lower, 2), "upper": round(found.log_z.upper, 2)}
    return {"data": name, "seed": model.config.seed, "images": count, "auroc": auroc, "log_z": log_z,
            "gaps": gaps.round(2).tolist()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--count", type=int, default=2000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = json.loads(PATH.read_text()) if PATH.exists() else []
    for run in options.runs:
        row = measured(run, options.count)
        print(row, flush=True)
        record = [old for old in record if (old["data"], old["seed"]) != (row["data"], row["seed"])] + [row]
        PATH.write_text("[\n" + ",\n".join(f" {json.dumps(each)}" for each in record) + "\n]\n")


if __name__ == "__main__":
    with kernels.use("reference"):
        main()
