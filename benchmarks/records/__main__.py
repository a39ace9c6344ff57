"""Which record was made by which commit, and which records are stale.

    python -m benchmarks.records

A record is STALE if a commit after its own changed a part of src/capspoe that its numbers depend on. Commits whose
message has the line "Numbers: unchanged" do not count: their author knows that no number can differ. A record to
which several sessions contributed has a line for each.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import records

WIDTH = 160  # of the table in a file or a pipe
PACKAGE = "src/capspoe"
UNCHANGED = "Numbers: unchanged"
COLUMNS = ("record", "commit", "date", "command", "state")


class Line(NamedTuple):
    """A record in the table."""

    record: str
    commit: str
    date: str
    command: str
    state: str


def changed_parts(commit: str, depends: list[str], root: Path) -> list[str] | None:
    """Those parts of src/capspoe that commits after this one changed; None if git does not know the commit."""
    paths = [f"{PACKAGE}/{part}" for part in depends]
    counted = ("--invert-grep", f"--grep=^{UNCHANGED}$")
    log = records.git(root, "log", "--format=", "--name-only", *counted, f"{commit}..HEAD", "--", *paths)
    if log is None:
        return None
    changed = set()
    for file in log.splitlines():
        changed.add(PurePosixPath(file).relative_to(PACKAGE).parts[0])
    return sorted(changed)


def commit_of(session: dict[str, Any]) -> str:
    if session["commit"] is None:
        return "unknown"
    commit = session["commit"][:7]
    if session["commit_is"] == records.AT_OR_BEFORE:
        commit += " or before"
    if session["uncommitted_changes"]:
        commit += ", with uncommitted changes"
    return commit


def state_of(session: dict[str, Any], depends: list[str], root: Path) -> str:
    if session["commit"] is None:
        return "unknown: made outside a git repository"
    changed = changed_parts(session["commit"], depends, root)
    if changed is None:
        return "unknown: the commit is not in this history"
    if changed:
        return f"STALE: {', '.join(changed)}"
    return "current"


def lines_of(name: str, folder: Path = records.FOLDER, root: Path = records.ROOT) -> list[Line]:
    """A line for each session that contributed to a record, the oldest first."""
    header = records.read_header(name, folder)
    lines = []
    for session in header["sessions"]:
        state = state_of(session, header["depends"], root)
        lines.append(Line(name, commit_of(session), session["date"], session["command"] or "by hand", state))
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args(arguments)
    table = Table(*COLUMNS)
    for name in records.names():
        for line in lines_of(name):
            table.add_row(*line)
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    console.print(table)


if __name__ == "__main__":
    main()
