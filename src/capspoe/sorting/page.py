"""The page of a sorted folder: one HTML file that opens from the disk, and shows thumbnails that lie beside it."""

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from capspoe.atomic import write_atomic
from capspoe.sorting.edits import Edits
from capspoe.sorting.grouping import ODD, medoid
from capspoe.sorting.outputs import Arrangement
from capspoe.sorting.sorter import Sorted

FILES = ("page.html", "page.css", "page.js")


def write_page(result: Sorted, arrangement: Arrangement, edits: Edits, skipped: str, out: Path) -> None:
    """Write index.html."""
    html, style, script = ((resources.files("capspoe.sorting") / name).read_text(encoding="utf-8") for name in FILES)
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(html)
    # "<" could end the script element that holds the data.
    data = json.dumps(page_data(result, arrangement, edits, out), separators=(",", ":")).replace("<", "\\u003c")
    text = page.render(
        folder=Path(result.library.folder).name or result.library.folder,
        count=len(result.library),
        photos=result.groups.projection.view == "photos",
        skipped=skipped,
        style=Markup(style),
        script=Markup(script),
        data=Markup(data),
    )
    write_atomic(out / "index.html", text.encode(errors="replace"))


def page_data(result: Sorted, arrangement: Arrangement, edits: Edits, out: Path) -> dict[str, Any]:
    """What the script shows.

    images    in order: [file, its address, address of the thumbnail, percent, what it is a copy of, exact, new]
    leaves    [first image, images, group, cover]: stretches of the images
    merges    boundaries between leaves, in the order in which the slider removes them
    groups    [name, cover, names of its own]
    odd       [first image, images] after all leaves, and their name
    edits     the lines of edits.csv
    """
    records = result.library.records
    place = np.empty(len(records), np.int64)
    place[arrangement.order] = np.arange(len(records))
    duplicates = result.duplicates
    images = []
    for row in arrangement.order.tolist():
        record = records[row]
        address = address_of(Path(result.library.folder) / record.name, out)
        thumbnail = f"thumbnails/{record.thumbnail}" if record.thumbnail else address
        first = int(duplicates.first[row])
        copy_of = int(place[first]) if first != row else -1
        percent = round(100 * float(result.groups.probability[row]))
        name = as_text(record.name)
        new = int(record.name in result.new)
        images.append([name, address, thumbnail, percent, copy_of, int(duplicates.exact[row]), new])
    leaf_in_order = arrangement.leaf[arrangement.order]
    leaves = []
    for number, group in enumerate(arrangement.tree.group.tolist()):
        members = np.flatnonzero(leaf_in_order == number)
        cover = medoid(result.groups.points[arrangement.order[members]])
        leaves.append([int(members[0]), len(members), group, int(members[cover])])
    groups = []
    for name, cover, ids in zip(arrangement.names, arrangement.covers, arrangement.ids, strict=True):
        groups.append([name, int(place[cover]), ids])
    odd = np.flatnonzero(leaf_in_order == ODD)
    return {
        "images": images,
        "leaves": leaves,
        "merges": arrangement.tree.merges,
        "groups": groups,
        "odd": [len(images) - len(odd), len(odd), arrangement.odd_name],
        "edits": [[as_text(what), as_text(name)] for what, name in edits.lines],
    }


def as_text(name: str) -> str:
    """A file name as a page can show it: bytes that are no UTF-8 become question marks."""
    return name.encode(errors="replace").decode()


def address_of(path: Path, out: Path) -> str:
    """The address of a file relative to the page, whatever its name is."""
    try:
        relative = os.path.relpath(path, out.resolve())
    except ValueError:  # another drive of Windows
        return path.as_uri()
    return quote(os.fsencode(relative.replace(os.sep, "/")))
