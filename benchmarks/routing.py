"""Other ways to route: python benchmarks/routing.py RUN [RUN ...]

For each finished run, stage 2 is trained again on its codes with other settings of routing, and scored as in
`capspoe evaluate --quick --samples 2000`. Scores are cached in RUN/evaluation-cache, so a second call resumes.
Writes benchmarks/routing.json, which docs/results.md shows.
"""

import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from scores import COLUMNS

from capspoe.evaluate.baselines import variant_rows
from capspoe.evaluate.run import QUICK, Evaluation, cached

HERE = Path(__file__).resolve().parent
WAYS: dict[str, dict[str, Any]] = {
    "no routing (one iteration)": {"iterations": 1},
    "cosine times 0.3": {"sharpness": 0.3},
    "the paper's, and the default: cosine": {"sharpness": 1.0},
    "cosine times 3": {"sharpness": 3.0},
    "against the agreement: cosine times -0.3": {"sharpness": -0.3},
    "the dot product": {"agreement": "dot"},
    "over the upper capsules (Sabour)": {"normalize": "upper"},
    "ten iterations, cosine times 0.3": {"iterations": 10, "sharpness": 0.3},
}


def rows_of(run: Path) -> list[dict[str, Any]]:
    evaluation = Evaluation(run, replace(QUICK, samples=2000))
    rows = []
    for name, changes in WAYS.items():
        models = variant_rows(evaluation.data, name, changes)
        path = evaluation.path(f"routing: {name}").with_suffix(".json")
        row = cached(path, partial(evaluation.rows, models))[0]
        kept = {key: row[key] for key in (*COLUMNS, "failed") if key in row}
        rows.append({"name": name, "run": run.name, **kept})
        print(json.dumps(rows[-1]), flush=True)
    return rows


if __name__ == "__main__":
    found = [row for name in sys.argv[1:] for row in rows_of(Path(name))]
    (HERE / "routing.json").write_text(json.dumps(found, indent=1) + "\n")
