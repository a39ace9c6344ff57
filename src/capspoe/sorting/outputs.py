"""The table of a sorted folder as .csv and .json, and folders of links or copies."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from capspoe.atomic import disk_errors, write_atomic
from capspoe.errors import InputError
from capspoe.sorting.edits import ODD_NAME, Edits, group_id
from capspoe.sorting.grouping import ODD, medoid, typicality
from capspoe.sorting.membership import set_of
from capspoe.sorting.sorter import Sorted
from capspoe.sorting.tree import Tree, build_tree, image_order

LINKED = "links.json"  # in the cache: folders of links that were made before


@dataclass(frozen=True)
class Arrangement:
    """Groups under the names that they have for a person, in the order in which the page shows them.

    names          of the groups; the odd ones are not among them
    ids            the names that each of them has of itself: several if they were merged, none if a person made it
    group          (n,): place of each image's group in `names`; -1 for the odd ones
    covers         the image that stands for each group
    typicality     (n,): share of the group's images that are at least as far from the cover
    tree, leaf     parts of groups and groups of groups; the leaf of each image
    order          (n,): of the images on the page
    """

    names: list[str]
    ids: list[list[str]]
    odd_name: str
    group: Int[np.ndarray, " n"]
    covers: list[int]
    typicality: Float[np.ndarray, " n"]
    tree: Tree
    leaf: Int[np.ndarray, " n"]
    order: Int[np.ndarray, " n"]

    def name_of(self, row: int) -> str:
        number = int(self.group[row])
        return self.odd_name if number == ODD else self.names[number]


def ids_of(result: Sorted) -> list[str]:
    """The names that groups have of themselves, in order; `odd` comes last."""
    numbers = sorted(set_of(result.groups.group))
    return [*map(group_id, numbers), ODD_NAME]


def arrange(result: Sorted, edits: Edits, seed: int = 0) -> Arrangement:
    """Apply a person's edits, and put the groups and their images in order."""
    groups = result.groups
    label = [edits.names.get(group_id(number), group_id(number)) for number in groups.group.tolist()]
    odd_name = edits.names.get(ODD_NAME, ODD_NAME)
    for row, file in enumerate(groups.names):
        if file in edits.moved:
            name = edits.moved[file]
            label[row] = edits.names.get(name, name)
    found = sorted(set(label) - {odd_name})
    place = {name: number for number, name in enumerate(found)}
    group = np.array([place.get(name, ODD) for name in label])
    if not found:
        # Everything was moved to the odd ones; a page needs a group.
        found = [odd_name]
        group[:] = 0
    tree, leaf = build_tree(groups.points, group, seed)

    # Number the groups as the tree orders them.
    shown = list(dict.fromkeys(tree.group.tolist()))
    number = np.empty(len(found), np.int64)
    number[shown] = np.arange(len(found))
    group = np.where(group == ODD, ODD, number[group])
    covers = []
    for k in range(len(found)):
        members = np.flatnonzero(group == k)
        covers.append(int(members[medoid(groups.points[members])]))
    names = [found[old] for old in shown]
    ids: dict[str, list[str]] = {name: [] for name in names}
    for own in ids_of(result):
        ids.get(edits.names.get(own, own), []).append(own)
    return Arrangement(
        names,
        [ids[name] for name in names],
        odd_name,
        group,
        covers,
        typicality(groups.points, group, dict(enumerate(covers))),
        Tree(number[tree.group], tree.merges),
        leaf,
        image_order(groups.points, leaf),
    )


def rows_of(result: Sorted, arrangement: Arrangement, edits: Edits) -> list[dict[str, Any]]:
    """A row of the table for each image, sorted by file."""
    names = result.groups.names
    duplicates = result.duplicates
    rows = []
    for row in sorted(range(len(names)), key=lambda row: os.fsencode(names[row])):
        moved = names[row] in edits.moved
        probability = 1.0 if moved else float(result.groups.probability[row])
        first = int(duplicates.first[row])
        kind = ""
        if first != row:
            kind = "exact" if duplicates.exact[row] else "near"
        rows.append(
            {
                "file": names[row],
                "group": arrangement.name_of(row),
                "probability": round(probability, 4),
                "typicality": round(float(arrangement.typicality[row]), 4),
                "duplicate": kind,
                "duplicate_of": names[first] if kind else "",
                "new": "yes" if names[row] in result.new else "",
                "moved": "yes" if moved else "",
            }
        )
    return rows


def write_json(result: Sorted, arrangement: Arrangement, rows: list[dict[str, Any]], path: Path) -> None:
    """Write groups, images and what was skipped; file names that are no UTF-8 have their bytes escaped."""
    names = result.groups.names
    groups = []
    for number, name in enumerate(arrangement.names):
        count = int(np.sum(arrangement.group == number))
        groups.append({"name": name, "images": count, "cover": names[arrangement.covers[number]]})
    document = {
        "folder": result.library.folder,
        "features": result.groups.projection.view,
        "groups": groups,
        "odd": {"name": arrangement.odd_name, "images": int(np.sum(arrangement.group == ODD))},
        "images": rows,
        "skipped": [{"file": item.name, "reason": item.reason} for item in result.library.unread],
        "unsupported": result.unsupported,
    }
    write_atomic(path, json.dumps(document, indent=1).encode())


def write_folders(
    files: dict[str, list[str]], folder: Path, out: Path, how: Literal["link", "copy"], cache: Path
) -> None:
    """Make a folder for each group, with links to its images or copies of them.

    Folders of links that were made here before are replaced. Anything else in the way is refused before anything is
    written.
    """
    made = []
    with suppress(OSError, ValueError):
        made = [str(name) for name in json.loads((cache / LINKED).read_text())]
    old = [out / name for name in made if "/" not in name and only_links(out / name)]
    for name in files:
        if (out / name).exists() and out / name not in old:
            advice = "remove the old groups, or choose another --out"
            raise InputError(f"{out / name} exists already; {advice}")
    with disk_errors(out):
        for path in old:
            for link in path.iterdir():
                link.unlink()
            path.rmdir()
        if how == "link":
            write_atomic(cache / LINKED, json.dumps(list(files)).encode())
        for name, images in files.items():
            (out / name).mkdir()
            for file in images:
                target = out / name / file.replace("/", "__")
                if how == "copy":
                    shutil.copy2(folder / file, target)
                else:
                    target.symlink_to(folder / file)


def only_links(path: Path) -> bool:
    """Whether a folder holds nothing but links."""
    return path.is_dir() and not path.is_symlink() and all(entry.is_symlink() for entry in path.iterdir())


def files_by_group(result: Sorted, arrangement: Arrangement) -> dict[str, list[str]]:
    """The files of each group, in the order of the page."""
    files: dict[str, list[str]] = {name: [] for name in arrangement.names}
    for row in arrangement.order.tolist():
        files.setdefault(arrangement.name_of(row), []).append(result.groups.names[row])
    return {name: members for name, members in files.items() if members}
