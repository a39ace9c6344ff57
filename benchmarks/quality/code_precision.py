"""How quality depends on the precision of stored codes, and on the epochs of the autoencoder.

    python benchmarks/quality.py codes RUN [RUN ...]
    python benchmarks/quality.py epochs RUN [--folder FOLDER] [--epochs 1 2 3 5]

codes: for each finished run, stage 2 is trained again on its codes as float32, float16 and uint8. epochs: whole runs
with its settings and other numbers of epochs are trained into FOLDER, or resumed there.
Writes benchmarks/quality.json and docs/figures/epochs.svg.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import capspoe
from capspoe.data import open_for
from capspoe.evaluate import quick_scores, variant
from capspoe.model.network import Network
from capspoe.run.model import CapsulePoE
from capspoe.train.codes import BATCH, encode_pixels

HERE = Path(__file__).resolve().parent
FOUND = HERE / "quality.json"
KEPT = ("fid", "precision", "recall", "purity", "nmi")


def rounded(codes: np.ndarray, kind: str) -> np.ndarray:
    """The codes as they would be read back after being stored so."""
    if kind == "uint8":
        return (np.rint(codes * 255) / 255).astype(np.float32)
    return codes.astype(kind)


def scores(model: Network) -> dict[str, float]:
    found = quick_scores(model)
    return {name: float(found[name]) for name in KEPT}


def codes(run: Path) -> list[dict[str, Any]]:
    model = CapsulePoE.load(run)
    pixels = open_for(model.config, model.image, split="train").batches(BATCH)
    exact = np.concatenate(list(encode_pixels(model, pixels)))
    rows = []
    for kind in ("float32", "float16", "uint8"):
        row = {"run": run.name, "codes": kind, **scores(variant(model, rounded(exact, kind)))}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def epochs(run: Path, folder: Path, counts: list[int]) -> list[dict[str, Any]]:
    own = CapsulePoE.load(run).config
    rows = []
    for count in counts:
        if count == own.autoencoder_epochs:
            out, model = run, CapsulePoE.load(run)
        else:
            out = folder / f"epochs-{count}"
            config = own.replace(autoencoder_epochs=count, min_steps=0)
            model = capspoe.train(out=out, config=config, quiet=True)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        last = [line["loss"] for line in lines if line.get("stage") == "autoencoder"][-3:]  # of 50 steps each
        row = {"epochs": count, "loss": float(np.mean(last)), **scores(model)}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, 4, figsize=(9, 2.4), layout="constrained")
    for axis, name in zip(axes, ("loss", "fid", "recall", "purity"), strict=True):
        axis.plot([row["epochs"] for row in rows], [row[name] for row in rows], "o-", color="#0072b2")
        axis.set_title({"fid": "FID"}.get(name, name), fontsize=10)
        axis.set_xticks([row["epochs"] for row in rows])
        axis.set_xlabel("epochs of the autoencoder", fontsize=9)
        axis.grid(alpha=0.3)
    figure.savefig(path)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("codes", "epochs"))
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--folder", type=Path, default=Path("runs/quality"))
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 2, 3, 5])
    options = parser.parse_args()
    known = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    if options.what == "codes":
        known["codes"] = [row for run in options.runs for row in codes(run)]
    else:
        known["epochs"] = epochs(options.runs[0], options.folder, options.epochs)
        draw(known["epochs"], HERE.parent / "docs" / "figures" / "epochs.svg")
    FOUND.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
