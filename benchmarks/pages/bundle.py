"""Make the network that ships with the package from a finished MNIST run.

    capspoe train mnist --out runs/bundle && capspoe evaluate runs/bundle --quick --samples 2000
    python -m benchmarks.pages.bundle runs/bundle

Writes the weights as float16 and the model card into src/capspoe/pretrained.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from capspoe import CapsulePoE
from capspoe.figures.summary import summary_of
from capspoe.run import hub
from capspoe.run.bundled import bundled_folder
from capspoe.run.checkpoint import DONE


def bundle(run: Path, folder: Path) -> list[Path]:
    """Export a run as float16, refusing one that is not finished and evaluated."""
    model = CapsulePoE.load(run)
    evaluated = any(row["name"] == "capspoe" for row in hub.scores(run))
    if model.stage != DONE or not evaluated:
        sys.exit(f"{run}: train it to the end and run `capspoe evaluate` first; the card needs its scores")
    folder.mkdir(parents=True, exist_ok=True)
    return hub.write(model, run, folder, half=True, summary=summary_of(model, run)._asdict())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    for path in bundle(options.run, bundled_folder()):
        print(path)


if __name__ == "__main__":
    main()
