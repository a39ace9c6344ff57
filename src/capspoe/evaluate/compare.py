"""Several runs in one table: the mean of every score, and its standard deviation across the runs."""

import csv
import io
import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from capspoe import __version__
from capspoe.atomic import write_atomic
from capspoe.errors import InputError
from capspoe.evaluate.table import COLUMNS

SUFFIXES = (".csv", ".json", ".md")


class Score(NamedTuple):
    """A score across runs."""

    mean: float
    sd: float | None  # standard deviation of the sample; None for one run
    runs: int


def compare(results: dict[str, dict[str, Any]]) -> dict[str, dict[str, Score]]:
    """The scores of every model across evaluations, which `capspoe evaluate` made of the runs named by the keys.

    Runs are comparable only on the same data set with the same samples.
    """
    for setting in ("samples", "quick"):
        different = {result["settings"][setting] for result in results.values()}
        if len(different) > 1:
            raise InputError(f"the evaluations have different {setting}: {sorted(different)}")
    nets = {result["feature_net"]["sha256"] for result in results.values() if result.get("feature_net")}
    if len(nets) > 1:
        raise InputError("the runs have different data sets or feature nets; their scores cannot be averaged")
    values_of: dict[str, dict[str, list[float]]] = {}
    for result in results.values():
        for row in result["rows"]:
            scores = values_of.setdefault(row["name"], {})
            for key in COLUMNS:
                if row.get(key) is not None:
                    scores.setdefault(key, []).append(float(row[key]))
    table: dict[str, dict[str, Score]] = {}
    for name, scores in values_of.items():
        table[name] = {}
        for key, values in scores.items():
            deviation = stdev(values) if len(values) > 1 else None
            table[name][key] = Score(mean(values), deviation, len(values))
    return table


def settings_of(results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How the runs were evaluated, which belongs to a score that is cited; `compare` refuses different settings."""
    first = next(iter(results.values()))
    net = first.get("feature_net")
    return {
        "runs": list(results),
        "data": first["data"]["name"],
        "quick": first["settings"]["quick"],
        "samples": first["settings"]["samples"],
        "sets": first["settings"]["sets"],
        "feature_net": net["sha256"] if net else None,
        "capspoe": __version__,
    }


def shown(score: Score | None, key: str) -> str:
    """'9.0 ± 0.3'."""
    if score is None:
        return ""
    style = COLUMNS[key][1]
    text = style.format(score.mean)
    if score.sd is not None:
        text += f" ± {style.format(score.sd)}"
    return text


def columns_of(table: dict[str, dict[str, Score]]) -> list[str]:
    """The scores that any model has."""
    return [key for key in COLUMNS if any(key in scores for scores in table.values())]


def as_markdown(table: dict[str, dict[str, Score]], settings: dict[str, Any]) -> str:
    # The spread within a run would be taken for that across the runs, which stands beside every mean.
    keys = [key for key in columns_of(table) if key != "fid_spread"]
    lines = [
        f"| model | {' | '.join(COLUMNS[key][0] for key in keys)} |",
        "|---" * (1 + len(keys)) + "|",
    ]
    for name, scores in table.items():
        lines.append(f"| {name} | {' | '.join(shown(scores.get(key), key) for key in keys)} |")
    runs = settings["runs"]
    if len(runs) == 1:
        note = f"One run: {runs[0]}."
    else:
        note = f"Mean ± standard deviation of {len(runs)} runs: {', '.join(runs)}."
    how = f"{settings['data']}, {settings['sets']} sets of {settings['samples']} samples"
    if settings["feature_net"]:
        how += f", feature net {settings['feature_net'][:12]}"
    return "\n".join([*lines, "", f"{note} {how}; capspoe {settings['capspoe']}.", ""])


def as_csv(table: dict[str, dict[str, Score]]) -> str:
    keys = columns_of(table)
    text = io.StringIO()
    writer = csv.writer(text)
    titles = ["model"]
    for key in keys:
        titles += [f"{key}_mean", f"{key}_sd", f"{key}_runs"]
    writer.writerow(titles)
    for name, scores in table.items():
        cells: list[Any] = [name]
        for key in keys:
            score = scores.get(key)
            cells += ["", "", 0] if score is None else [score.mean, score.sd, score.runs]
        writer.writerow(cells)
    return text.getvalue()


def as_json(table: dict[str, dict[str, Score]], settings: dict[str, Any]) -> str:
    models = {name: {key: score._asdict() for key, score in scores.items()} for name, scores in table.items()}
    return json.dumps({**settings, "models": models}, indent=1) + "\n"


def write_comparison(table: dict[str, dict[str, Score]], settings: dict[str, Any], path: Path) -> None:
    """Write the table as its suffix says."""
    texts = {
        ".md": lambda: as_markdown(table, settings),
        ".csv": lambda: as_csv(table),
        ".json": lambda: as_json(table, settings),
    }
    write_atomic(path, texts[path.suffix.lower()]().encode())
