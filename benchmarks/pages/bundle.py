"""Make the network that ships with the package from a finished MNIST run.

    capspoe train mnist --recognition-steps 12000 --out runs/bundle
    capspoe evaluate runs/bundle --quick --samples 2000
    python -m benchmarks.pages.bundle runs/bundle

Writes the weights as float16, the model card and the curves of the training into src/capspoe/pretrained.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from capspoe import CapsulePoE
from capspoe.figures.curves import read_metrics
from capspoe.figures.summary import summary_of
from capspoe.run import hub
from capspoe.run.bundled import bundled_folder
from capspoe.run.checkpoint import DONE

LINES = 80  # of each stage in metrics.jsonl


def bundle(run: Path, folder: Path) -> list[Path]:
    """Export a run as float16, refusing one that is not finished and evaluated."""
    model = CapsulePoE.load(run)
    evaluated = any(row["name"] == "capspoe" for row in hub.scores(run))
    if model.stage != DONE or not evaluated:
        sys.exit(f"{run}: train it to the end and run `capspoe evaluate` first; the card needs its scores")
    folder.mkdir(parents=True, exist_ok=True)
    written = hub.write(model, run, folder, half=True, summary=summary_of(model, run)._asdict())
    return [*written, write_curves(run, folder)]


def write_curves(run: Path, folder: Path) -> Path:
    """A part of metrics.jsonl, for the explorer's Training view: some lines of each stage, and the last one."""
    lines: list[str] = []
    for stage in read_metrics(run).values():
        spacing = math.ceil(len(stage) / LINES)
        for line in [*stage[:-1:spacing], stage[-1]]:
            lines.append(json.dumps({name: value for name, value in line.items() if name != "use"}))
    path = folder / "metrics.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    for path in bundle(options.run, bundled_folder()):
        print(path)


if __name__ == "__main__":
    main()
