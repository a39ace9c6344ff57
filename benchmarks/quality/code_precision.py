"""Measure what it costs to store the codes in fewer bits.

    python -m benchmarks.quality.code_precision RUN ...

For each finished run, stage 2 is trained again on its codes as float32, float16 and uint8.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import records
from capspoe.data import open_for
from capspoe.evaluate import quick_scores, variant
from capspoe.run.model import CapsulePoE

RECORD = "code_precision"
DEPENDS = (*records.TRAINING, "evaluate", "infer")
PRECISIONS = ("float32", "float16", "uint8")
SCORES = ("fid", "precision", "recall", "purity", "nmi")
BATCH = 512


@torch.no_grad()
def exact_codes(network: CapsulePoE) -> np.ndarray:
    """The codes of the training images as float32."""
    codes = []
    for pixels in open_for(network.config, network.image, split="train").batches(BATCH):
        codes.append(network.codec.encode(network.tensor(pixels)).numpy())
    return np.concatenate(codes)


def stored(codes: np.ndarray, precision: str) -> np.ndarray:
    """The codes as they would be read back after being stored so."""
    if precision == "uint8":
        return (np.rint(codes * 255) / 255).astype(np.float32)
    return codes.astype(precision)


def scores_of(network: CapsulePoE) -> dict[str, float]:
    scores = quick_scores(network)
    return {name: float(scores[name]) for name in SCORES}


def measure(run: Path) -> list[dict[str, Any]]:
    network = CapsulePoE.load(run)
    codes = exact_codes(network)
    rows = []
    for precision in PRECISIONS:
        retrained = variant(network, stored(codes, precision))
        row = {"run": run.name, "codes": precision, **scores_of(retrained)}
        print(json.dumps(row), flush=True)
        rows.append(row)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    options = parser.parse_args(arguments)
    rows = []
    for run in options.runs:
        rows += measure(run)
    print(records.write(RECORD, rows, DEPENDS))


if __name__ == "__main__":
    main()
