"""The page of a sorted folder: one HTML file that opens from the disk, and shows thumbnails that lie beside it."""

import base64
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
from capspoe.errors import RunError
from capspoe.sorting.edits import Edits
from capspoe.sorting.grouping import ODD, medoid
from capspoe.sorting.outputs import Arrangement
from capspoe.sorting.sorter import Sorted

FOLDER = resources.files("capspoe.sorting")
THUMBNAIL_TYPES = {".jpg": "image/jpeg", ".png": "image/png"}
NEEDED = ("folder", "photos", "skipped", "skipped_files", "alone", "leaves", "merges", "odd", "edits")
BEFORE_DATA = '<script type="application/json" id="data">'  # in page.html


def write_page(
    result: Sorted, arrangement: Arrangement, edits: Edits, skipped: str, out: Path, embed: bool = False
) -> None:
    """Write index.html; `embed` puts the thumbnails into it."""
    data = page_data(result, arrangement, edits, out) | {"skipped": skipped, "alone": embed}
    if embed:
        for image in data["images"]:
            image[2] = embedded(out / image[2])
    write_atomic(out / "index.html", render_page(data).encode(errors="replace"))


def render_page(data: dict[str, Any], served: bool = False) -> str:
    """The page of such data: one file, or with its style and script beside it for the explorer, which serves it."""
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(part("page.html"))
    # "<" could end the script element that holds the data.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return page.render(
        data=data, text=Markup(text), style=Markup(part("page.css")), script=Markup(part("page.js")), served=served
    )


def embedded(path: Path) -> str:
    """A thumbnail as an address that holds the whole image."""
    content = base64.b64encode(path.read_bytes()).decode()
    return f"data:{THUMBNAIL_TYPES[path.suffix]};base64,{content}"


def part(name: str) -> str:
    """One of the page's files in the package."""
    return (FOLDER / name).read_text(encoding="utf-8")


def read_page_data(path: Path) -> dict[str, Any]:
    """What a page that was written shows; a RunError if it is missing or damaged."""
    try:
        text = path.read_text(encoding="utf-8")
        start = text.index(BEFORE_DATA) + len(BEFORE_DATA)
        data: dict[str, Any] = json.loads(text[start : text.index("</script>", start)])
        # Damage shows here and not in the middle of an answer.
        [[str(name), str(address)] for name, address, *_ in data["images"]]
        [list(ids) for _, _, ids in data["groups"]]
        [data[name] for name in NEEDED]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is missing or damaged; run `capspoe sort` again") from error
    return data


def page_data(result: Sorted, arrangement: Arrangement, edits: Edits, out: Path) -> dict[str, Any]:
    """What the script shows.

    folder    the name of the folder
    photos    whether a pretrained network compared the images
    skipped_files   how many files are not among the images
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
        thumbnail = f"thumbnails/{record.thumbnail}"
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
        "folder": as_text(Path(result.library.folder).name or result.library.folder),
        "photos": result.groups.projection.view == "photos",
        "skipped_files": len(result.library.unread) + len(result.unsupported),
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
