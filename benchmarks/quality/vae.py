"""The convolutional VAE beside a run: python benchmarks/vae.py RUN

The two VAE rows of `capspoe evaluate RUN --samples 2000`, without the other slow baselines. Writes
benchmarks/records/vae.json.
"""

import json
import sys
from pathlib import Path

from capspoe.evaluate import baselines
from capspoe.evaluate.run import QUICK, Evaluation

if __name__ == "__main__":
    run = Path(sys.argv[1])
    evaluation = Evaluation(run, QUICK._replace(samples=2000))
    rows = evaluation.rows(baselines.vae(evaluation.data))
    record = Path(__file__).parent / "records" / "vae.json"
    record.write_text(json.dumps({"run": run.name, "rows": rows}, indent=1) + "\n")
    print(record.read_text())
