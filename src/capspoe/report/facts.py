"""The facts in a run folder: any JSON as tables."""

import json
from pathlib import Path
from typing import Any

from capspoe.errors import RunError

Table = tuple[str, list[str], list[list[Any]]]  # caption, names of the columns, rows


def read_json(path: Path) -> Any:
    """The content of a file, or an empty dict without one."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read as JSON; make it again or delete it") from error


def tables(values: Any, caption: str = "") -> list[Table]:
    """Caption, column names and rows of tables that show any JSON.

    A list of dicts is a table with columns, a dict one of names and values without; what is nested
    follows.
    """
    if isinstance(values, list):
        return [table_of_dicts(values, caption)]
    plain = []
    nested_tables = []
    for name, value in values.items():
        if is_nested(value):
            nested_tables += tables(value, f"{caption} {name}".strip())
        else:
            plain.append([name, value])
    if not plain:
        return nested_tables
    return [(caption, [], plain), *nested_tables]


def table_of_dicts(dicts: list[dict[str, Any]], caption: str) -> Table:
    # A dict instead of a set, to have the columns in the order in which they first occur.
    first_seen: dict[str, None] = {}
    for row in dicts:
        first_seen |= dict.fromkeys(row)
    columns = list(first_seen)
    rows = []
    for row in dicts:
        rows.append([row.get(name) for name in columns])
    return caption, columns, rows


def is_nested(value: Any) -> bool:
    """Whether a value is a dict or a list of dicts, and not empty."""
    if not value:
        return False
    if isinstance(value, list):
        return isinstance(value[0], dict)
    return isinstance(value, dict)
