"""The numbers behind the documentation, each with its origin.

A record is a JSON file in this folder. Its "content" is what a script measured. Its "header" says where that comes
from: for every session that contributed, the commit, the date, the command and the version of capspoe, the oldest
session first; and the parts of src/capspoe that the numbers depend on. `python -m benchmarks.records` prints a table
of all records and says which are stale.
"""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import capspoe
from capspoe.errors import DivergedError

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]

# Parts of src/capspoe that a trained network depends on.
TRAINING = ("config.py", "data", "kernels", "model", "training")

EXACT = "made at"
AT_OR_BEFORE = "made at or before"  # for example a record of a run that was trained some time ago


class Code(NamedTuple):
    """The commit that is checked out, and whether code differs from it; None where git does not know."""

    commit: str | None
    uncommitted_changes: bool | None


def git(root: Path, *arguments: str) -> str | None:
    """Output of a git command, or None if it fails or there is no git."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def current_code(root: Path = ROOT) -> Code:
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return Code(None, None)
    # Records are left out: a script that adds rows one by one would call itself changed.
    changes = git(root, "status", "--porcelain", "--", "src", "benchmarks", ":(exclude)benchmarks/records/*.json")
    return Code(commit.strip(), bool(changes))


# At the start of the process, not when a record is written: that may be hours and some commits later.
CODE = current_code()


def command() -> str:
    """How this process was started."""
    program = [Path(sys.argv[0]).name]
    module = sys.modules["__main__"].__spec__
    if module is not None:  # started by python -m
        program = ["python", "-m", module.name.removesuffix(".__main__")]
    return shlex.join([*program, *sys.argv[1:]])


def names(folder: Path = FOLDER) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.json"))


def read(name: str, default: Any = None, folder: Path = FOLDER) -> Any:
    """The content of a record, or `default` if there is no such record."""
    path = folder / f"{name}.json"
    if not path.exists():
        return default
    return json.loads(path.read_text(encoding="utf-8"))["content"]


def read_header(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["header"]


def write(
    name: str,
    content: Any,
    depends: tuple[str, ...],
    *,
    extends: bool = False,
    commit_is: str = EXACT,
    folder: Path = FOLDER,
) -> Path:
    """Store a record.

    Parameters
    ----------
    name : file name without .json
    content : anything that JSON can hold; the rows of a table as a list
    depends : packages and modules of src/capspoe that can change the numbers, such as ("model", "config.py")
    extends : the content includes rows of the record as it is, so the sessions that made those stay in the header
    commit_is : AT_OR_BEFORE if an earlier process may have made the numbers
    """
    session = {
        "commit": CODE.commit,
        "commit_is": commit_is,
        "uncommitted_changes": CODE.uncommitted_changes,
        "date": date.today().isoformat(),
        "command": command(),
        "capspoe": capspoe.__version__,
    }
    path = folder / f"{name}.json"
    sessions = []
    if extends and path.exists():
        sessions = read_header(name, folder)["sessions"]
    if session not in sessions:
        sessions.append(session)
    return store(path, {"depends": list(depends), "sessions": sessions}, content)


def add_row(
    name: str,
    key: dict[str, Any],
    measure: Callable[[], dict[str, Any]],
    depends: tuple[str, ...],
    folder: Path = FOLDER,
) -> None:
    """Measure a row and add it to a record, unless the record has a row with this key.

    The row is the key, what `measure` returns, and the seconds that it took. A training that diverges has a row too.
    """
    if any(key.items() <= row.items() for row in read(name, [], folder)):
        return
    began = time.monotonic()
    try:
        row = key | measure()
    except DivergedError as error:
        row = key | {"diverged": str(error)}
    row["seconds"] = round(time.monotonic() - began, 1)
    # Read again: another process may have added rows meanwhile.
    write(name, [*read(name, [], folder), row], depends, extends=True, folder=folder)
    print(json.dumps(row), flush=True)


def store(path: Path, header: dict[str, Any], content: Any) -> Path:
    """Write a record with a given header."""
    # Under another name first, so that an interruption leaves the old record.
    temporary = path.with_suffix(".tmp")
    temporary.write_text(as_text(header, content), encoding="utf-8")
    return temporary.replace(path)


def as_text(header: dict[str, Any], content: Any) -> str:
    """JSON with one line for each session and each row, so that changes are easy to review."""
    body = one_line_each(content) if isinstance(content, list) else json.dumps(content, indent=1, ensure_ascii=False)
    depends = json.dumps(header["depends"])
    sessions = one_line_each(header["sessions"])
    return f'{{\n"header": {{\n"depends": {depends},\n"sessions": {sessions}\n}},\n"content": {body}\n}}\n'


def one_line_each(rows: list[Any]) -> str:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    return "[\n " + ",\n ".join(lines) + "\n]"
