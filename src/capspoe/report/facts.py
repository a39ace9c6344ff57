"""What a run folder says about itself: the command that made it, and any JSON as tables."""

import dataclasses
import json
import shlex
from itertools import product
from pathlib import Path
from typing import Any

from capspoe.config import PRESETS, Config, preset
from capspoe.errors import RunError


def read_json(path: Path) -> Any:
    """The content of a file, or an empty dict without one."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise RunError(f"{path} cannot be read as JSON; make it again or delete it") from error


def data_name(config: Config) -> str:
    """The data set without the folders above it, since reports are passed on."""
    return Path(config.data).name or config.data


def train_command(config: Config) -> str:
    """The shortest `capspoe train` command that gives these settings."""
    found = []
    for name, literal, neurons in product(PRESETS, (False, True), (None, config.neurons)):
        words = ["--preset", name] if name != "small" else []
        words += ["--literal"] if literal else ["--neurons", neurons] if neurons else []
        start = dataclasses.asdict(preset(name, config.data, literal, neurons))
        for setting, value in dataclasses.asdict(config).items():
            flag = setting.replace("_", "-")
            if value != start[setting]:
                no_or_yes = [f"--{flag}" if value else f"--no-{flag}"]
                words += no_or_yes if isinstance(value, bool) else [f"--{flag}", str(value)]
        found.append(words)
    return shlex.join(["capspoe", "train", data_name(config), *min(found, key=len)])


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
