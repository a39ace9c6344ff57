"""`capspoe evaluate RUN`: every score of a run and of the baselines, in RUN/evaluation.json and as a table."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from capspoe import checkpoint, distributed, hub
from capspoe.errors import RunError
from capspoe.evaluate.cache import Cache, fingerprint
from capspoe.evaluate.parts import Evaluation
from capspoe.evaluate.settings import Settings, settings_for
from capspoe.evaluate.table import print_table
from capspoe.model import CapsulePoE


def evaluate(
    run: str | Path,
    quick: bool = False,
    samples: int | None = None,
    seed: int = 0,
    quiet: bool = False,
    ablate: bool = False,
) -> dict[str, Any]:
    """Score a finished run and write RUN/evaluation.json. What was computed before is not computed again.

    Of several processes each computes some of the parts, and the first writes.
    """
    folder = Path(run)
    settings = settings_for(quick, samples, seed, ablate)
    whole = "all-ablated" if ablate else "all"
    with distributed.joined():
        with distributed.together():
            cache = opened_cache(folder, settings)
        result: dict[str, Any] | None = distributed.of_first(lambda: cache.get(whole))
        if result is None:
            with distributed.together():
                evaluation = Evaluation(CapsulePoE.load(folder), settings, cache, quiet)
                evaluation.material.check_enough()
            result = evaluation.everything()
            with distributed.together():
                if distributed.first():
                    cache.put(whole, result)
        with distributed.together():
            if distributed.first():
                with checkpoint.writing(folder):
                    content = json.dumps(result, indent=2) + "\n"
                    checkpoint.write_atomically(folder / "evaluation.json", content.encode())
    return result


def opened_cache(folder: Path, settings: Settings) -> Cache:
    """What was computed before for the weights of a finished run; refuses one that is not finished."""
    checkpoint.open_run(folder)
    saved = hub.newest(folder)
    if saved.state.stage != "done":
        raise RunError(
            f"{folder} is not finished (it stands at {saved.state.stage!r}); train it to its end first"
        )
    parts_alike = dataclasses.asdict(dataclasses.replace(settings, ablate=False))
    return Cache(folder / "evaluation-cache", fingerprint(saved.weights, parts_alike))


def command(run: Path, quick: bool, samples: int | None, seed: int, ablate: bool) -> None:
    """What `capspoe evaluate` does."""
    with distributed.joined():
        result = evaluate(run, quick, samples, seed, ablate=ablate)
        if not distributed.first():
            return
    print_table(result, Console())
    print(run / "evaluation.json")
