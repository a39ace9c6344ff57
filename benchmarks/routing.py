"""What other ways to route do: python benchmarks/routing.py RUN [RUN ...]

For each finished run stage 2 is trained anew on its codes, everything the same but the routing, and scored as
`capspoe evaluate --quick --samples 2000` does. Kept in RUN/evaluation-cache, so that a second call carries on.
Written: benchmarks/routing.json, which docs/results.md shows.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from scores import COLUMNS

from capspoe.evaluate.material import Material
from capspoe.evaluate.rows import Rows
from capspoe.evaluate.run import opened_cache
from capspoe.evaluate.settings import settings_for
from capspoe.model import CapsulePoE

HERE = Path(__file__).resolve().parent
WAYS: dict[str, dict[str, Any]] = {
    "no routing (one iteration)": {"iterations": 1},
    "the default: cosine times 0.3": {},
    "the paper's: cosine": {"sharpness": 1.0},
    "cosine times 3": {"sharpness": 3.0},
    "against the agreement: cosine times -0.3": {"sharpness": -0.3},
    "the dot product": {"agreement": "dot", "sharpness": 1.0},
    "over the upper capsules (Sabour)": {"normalize": "upper", "sharpness": 1.0},
    "ten iterations": {"iterations": 10},
}


def rows_of(run: Path) -> list[dict[str, Any]]:
    settings = settings_for(quick=True, samples=2000, seed=0)
    cache = opened_cache(run, settings)
    table = Rows(Material(CapsulePoE.load(run), settings.samples, settings.seed), settings)
    rows = []
    for name, changes in WAYS.items():
        part = re.sub(r"[^a-z0-9-]+", "-", f"routing: {name}")
        made = cache.or_make(part, partial(table.variant, name, **changes))
        kept = {key: made[0][key] for key in (*COLUMNS, "failed") if key in made[0]}
        rows.append({"name": name, "run": run.name, **kept})
        print(json.dumps(rows[-1]), flush=True)
    return rows


if __name__ == "__main__":
    found = [row for name in sys.argv[1:] for row in rows_of(Path(name))]
    (HERE / "routing.json").write_text(json.dumps(found, indent=1) + "\n")
