"""OUT/edits.csv: names that a person has given to groups, and images that they have moved.

Each line has two fields. `group-03,cats` names a group; two groups with one name become one. `sub/a.png,cats` moves
an image to a group, which is made if there is none of this name. Every run reads the file and keeps what it says.
"""

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

from capspoe.atomic import write_atomic
from capspoe.errors import InputError

HEADER = ("group_or_file", "name")
ODD_NAME = "odd"
RESERVED = ("cache", "thumbnails", "run", "index.html", "groups.csv", "groups.json", "edits.csv")


@dataclass
class Edits:
    """Names of groups (by `group-03`), and the group's name for each image that was moved."""

    names: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)  # lines about files that are not there
    lines: list[tuple[str, str]] = field(default_factory=list)  # as they are in the file


def group_id(number: int) -> str:
    """The name of a group that nobody has named."""
    return ODD_NAME if number < 0 else f"group-{number:02d}"


def read_edits(path: Path, groups: set[str], files: set[str]) -> Edits:
    """Read the file; refuses lines that are not two fields.

    Parameters
    ----------
    path : of edits.csv, which may be missing
    groups : the names `group-01` and so on
    files : names of the images
    """
    edits = Edits()
    if not path.exists():
        return edits
    try:
        text = path.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    # Spreadsheets of some countries write semicolons.
    first = text.partition("\n")[0]
    separator = ";" if first.count(";") > first.count(",") else ","
    for number, row in enumerate(csv.reader(io.StringIO(text), delimiter=separator), 1):
        fields = [value.strip() for value in row]
        if not any(fields) or (number == 1 and tuple(fields[:2]) == HEADER):
            continue
        if len(fields) < 2 or any(fields[2:]):
            raise InputError(f"{path}, line {number}: two fields are needed, such as group-03,cats")
        what, name = fields[:2]
        edits.lines.append((what, name))
        if not name:
            continue
        check_name(name, f"{path}, line {number}")
        if what in groups:
            edits.names[what] = name
        elif what in files:
            edits.moved[what] = name
        else:
            edits.unknown.append(what)
    return edits


def check_name(name: str, where: str) -> None:
    """Refuse names that no folder can have; `where` begins the error."""
    impossible = "/" in name or "\\" in name or any(ord(letter) < 32 for letter in name)
    if impossible or name.startswith(".") or name.lower() in RESERVED:
        reason = "it may not hold a slash or begin with a dot, and some names are taken"
        raise InputError(f"{where}: {name!r} cannot be the name of a group's folder ({reason}); choose another")


def write_edits(path: Path, edits: Edits, groups: list[str]) -> None:
    """Write the file with what it says and an empty line for each new group."""
    known = {what for what, _ in edits.lines}
    lines = [*edits.lines, *((group, "") for group in groups if group not in known)]
    lines.sort(key=lambda line: (line[0] not in groups, groups.index(line[0]) if line[0] in groups else 0))
    if path.exists() and lines == edits.lines:
        return
    _write_lines(path, lines)


def change_edits(path: Path, changes: dict[str, str], groups: set[str], files: set[str]) -> list[tuple[str, str]]:
    """Give groups and images other names in the file; returns its lines. An empty name takes a name away.

    Parameters
    ----------
    path : of edits.csv
    changes : from a group (`group-03`) or an image's file to the name of a group
    groups, files : as for `read_edits`; anything else is refused
    """
    for what, name in changes.items():
        if what not in groups and what not in files:
            raise InputError(f"there is no group or image {what[:80]!r} here")
        if name:
            check_name(name, "the name of a group")
    lines = dict(read_edits(path, groups, files).lines) | changes
    # An image that goes back to its own group needs no line; a group's line shows that it can be named.
    kept = [(what, name) for what, name in lines.items() if name or what not in files]
    _write_lines(path, kept)
    return kept


def _write_lines(path: Path, lines: list[tuple[str, str]]) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(HEADER)
    writer.writerows(lines)
    write_atomic(path, buffer.getvalue().encode(errors="surrogateescape"))
