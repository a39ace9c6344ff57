"""The facts in a run folder: any JSON as tables."""

import json
from pathlib import Path
from typing import Any

from capspoe.errors import RunError


def read_json(path: Path) -> Any:
    """The content of a file, or an empty dict without one."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read as JSON; make it again or delete it") from error


def tables(values: Any, caption: str = "") -> list[tuple[str, list[str], list[list[Any]]]]:
    """Caption, column names and rows of tables that show any JSON.

    A list of dicts is a table with columns, a dict one of names and values without; what is nested follows.
    """
    if isinstance(values, list):
        columns = list(dict.fromkeys(name for row in values for name in row))
        return [(caption, columns, [[row.get(name) for name in columns] for row in values])]
    nested = {k: v for k, v in values.items() if v and isinstance(v[0] if isinstance(v, list) else v, dict)}
    plain = [[name, value] for name, value in values.items() if name not in nested]
    further = [table for name, v in nested.items() for table in tables(v, f"{caption} {name}".strip())]
    return [(caption, [], plain), *further] if plain else further
