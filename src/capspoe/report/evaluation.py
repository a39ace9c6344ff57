"""The section of an evaluation: the scores as the command prints them, and how they were measured."""

from typing import Any

from capspoe.errors import RunError
from capspoe.evaluate import table
from capspoe.report import facts

# Lists with an entry for each capsule, or each capsule and class: for programs, which read evaluation.json.
LONG = ("table", "sample_class_entropy", "capsules")
PRINTED = ("rows", "data", "seconds", "instantiation")
SCORED = ("clustering", "likelihood", "instantiation", "settings")


def evaluation_section(scores: dict[str, Any]) -> dict[str, Any]:
    """What the template shows of the content of evaluation.json.

    `rows` has the name of each model and its scores as text, in the order of `columns`; `lines` are the scores
    that belong to no single model; `tables` has the rest.
    """
    try:
        rows = scores.get("rows", [])
        keys = [key for key in table.COLUMNS if key != "seconds" and any(row.get(key) is not None for row in rows)]
        lines = []
        if all(name in scores for name in SCORED):
            lines = table.lines(scores)
        return {
            "columns": [table.COLUMNS[key][0] for key in keys],
            "rows": [(row["name"], [table.cell(row, key) for key in keys]) for row in rows],
            "lines": lines,
            "tables": facts.tables(without_long_lists(scores)),
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RunError("evaluation.json is damaged; run `capspoe evaluate` again, or delete it") from error


def without_long_lists(scores: dict[str, Any]) -> dict[str, Any]:
    short = {}
    for name, value in scores.items():
        if name in PRINTED:
            continue
        if isinstance(value, dict):
            value = {key: entry for key, entry in value.items() if key not in LONG or not isinstance(entry, list)}
        short[name] = value
    return short
