"""Audit the routing of trained runs: controls that replace the weights, starved capsules, static weights.

    python -m benchmarks.quality.audit [RUN ...]

The same as `capspoe audit RUN`, into a record.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import records
from capspoe.data import open_for
from capspoe.infer.audit import audit_network
from capspoe.run.model import CapsulePoE

RECORD = "audit"
DEPENDS = (*records.TRAINING, "infer")
IMAGES = 2000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", default=["mnist-small"], help="default: mnist-small")
    options = parser.parse_args(arguments)
    rows = []
    for run in options.runs:
        model = CapsulePoE.load(run)
        pixels, labels = open_for(model.config, model.image, split="test").spread(IMAGES).images()
        for depth, audit in enumerate(audit_network(model, pixels, labels)):
            rows.append({"run": Path(run).name, "layer": depth + 1, **audit.to_dict()})
            print(*audit.summary(), sep="\n")
    records.write(RECORD, rows, DEPENDS, commit_is=records.AT_OR_BEFORE)


if __name__ == "__main__":
    main()
