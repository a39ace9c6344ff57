"""Measure a convolutional variational autoencoder beside a run.

    python -m benchmarks.quality.vae RUN

The two VAE rows of `capspoe evaluate RUN --samples 2000`, without the other slow baselines.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks import records
from capspoe.evaluate import baselines
from capspoe.evaluate.run import QUICK, Evaluation

RECORD = "vae"
DEPENDS = (*records.TRAINING, "evaluate")
SAMPLES = 2000


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    evaluation = Evaluation(options.run, QUICK._replace(samples=SAMPLES))
    rows = evaluation.rows(baselines.vae(evaluation.data))
    for row in rows:
        print(json.dumps(row))
    print(records.write(RECORD, {"run": options.run.name, "rows": rows}, DEPENDS))


if __name__ == "__main__":
    main()
