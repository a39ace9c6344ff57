"""Make the network that ships with the package from a finished MNIST run:

capspoe train mnist --out runs/bundle && capspoe evaluate runs/bundle --quick --samples 2000
python benchmarks/bundle.py runs/bundle
"""

import sys
from pathlib import Path

from capspoe import CapsulePoE
from capspoe.figures.summary import summary_of
from capspoe.run import hub
from capspoe.run.bundled import bundled_folder
from capspoe.run.checkpoint import DONE


def bundle(run: Path, folder: Path) -> list[Path]:
    """Export a run as float16, refusing one that is not finished and evaluated."""
    model = CapsulePoE.load(run)
    if model.stage != DONE or "capspoe" not in [row["name"] for row in hub.scores(run)]:
        sys.exit(f"{run}: train it to the end and run `capspoe evaluate` first; the card needs its scores")
    folder.mkdir(parents=True, exist_ok=True)
    return hub.write(model, run, folder, half=True, summary=summary_of(model, run)._asdict())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(*bundle(Path(sys.argv[1]), bundled_folder()), sep="\n")
