"""`capspoe sort`."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from capspoe.commands.arguments import command_line, parse
from capspoe.errors import InputError

if TYPE_CHECKING:
    from capspoe.run.model import CapsulePoE

ODD = "odd"  # the group of images that come back too badly
FENCES = 3.0  # of the logarithm of the error: quartile distances above the upper quartile
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ folder }}, sorted</title><link rel="icon" href="data:,">
<style>
:root { color-scheme: light dark; font: 15px/1.45 system-ui, "Segoe UI", Roboto, sans-serif; }
body { max-width: 1400px; margin: 0 auto; padding: 16px; }
nav { display: flex; flex-wrap: wrap; gap: 4px 14px; }
h2 small, p, figcaption { color: light-dark(#5a5e67, #a4aab6); font-weight: 400; }
div { display: grid; grid-template-columns: repeat(auto-fill, minmax(84px, 1fr)); gap: 10px; }
figure { margin: 0; min-width: 0; }
img { width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: 6px;
  background: light-dark(#eeece6, #22262e); }
figcaption { font-size: .74rem; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
</style></head><body>
<h1>{{ folder }}, sorted</h1>
<p>{{ count }} images in {{ groups | length }} groups, found without labels. The most typical images come first.
<a href="groups.csv">groups.csv</a> has every image with its group, probability, typicality and pose.</p>
<nav>{% for name, images in groups %}<a href="#{{ name }}">{{ name }} ({{ images | length }})</a>{% endfor %}</nav>
{% for name, images in groups %}
<h2 id="{{ name }}">{{ name }} <small>{{ images | length }} images
{%- if name == odd %} that look like no group{% endif %}</small></h2>
<div>{% for file, address in images %}
<figure><a href="{{ address }}"><img loading="lazy" src="{{ address }}" alt=""></a>
<figcaption title="{{ file }}">{{ file }}</figcaption></figure>{% endfor %}</div>
{% endfor %}</body></html>
"""


@dataclass(frozen=True)
class Sort:
    """Sort a folder of images into groups that look alike, without labels.

    Trains a network in OUT/run first, unless a finished one is there. Writes OUT/groups.csv and OUT/index.html, which
    shows every group. Your images are never moved, changed or deleted.
    """

    folder: tyro.conf.Positional[
        Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="The folder of images.")]
    ]
    out: Path
    """The folder to write to."""
    groups: int | None = None
    """Number of groups (default: 20), not counting that of the odd ones out."""
    link: bool = False
    """Also make a folder of links for each group."""
    copy: bool = False
    """Also make a folder of copies for each group."""
    size: int | None = None
    """Resize images to this many pixels for the network (default: as `capspoe train`)."""
    run: Path | None = None
    """Use this run instead of training one."""


def sort(argv: list[str]) -> None:
    a = parse(Sort, "sort", argv)
    if a.link and a.copy:
        raise InputError("choose --link or --copy, not both")
    if not a.folder.is_dir():
        raise InputError(f"{a.folder} is not a folder of images")
    if a.out.resolve().is_relative_to(a.folder.resolve()):
        raise InputError(
            f"--out must be outside {a.folder}, so that what is written is not sorted the next time"
        )
    import numpy as np

    from capspoe.commands.encode import columns, encoded_blocks, write_table
    from capspoe.data import open_for

    model = find_model(a)
    dataset = open_for(model.config, model.image, str(a.folder), "all")
    table = columns(dataset, encoded_blocks(model, dataset, errors=True))
    odd = odd_ones(np.array(table.pop("error")))
    capsules = table.pop("capsule")
    groups = [ODD if is_odd else f"group-{j:02d}" for is_odd, j in zip(odd, capsules, strict=True)]
    table = {"file": table.pop("file"), "group": groups, **table}
    write_table(table, a.out / "groups.csv")
    write_page(table, a.folder, a.out)
    if a.link or a.copy:
        place_files(table, a.folder, a.out, a.copy)
    print(f"{len(groups)} images in {len(set(groups) - {ODD})} groups, {groups.count(ODD)} odd ones out")
    print(a.out / "index.html", a.out / "groups.csv", sep="\n")
    print(f"  next      {command_line('explore', a.run or a.out / 'run')}")


def find_model(a: Sort) -> "CapsulePoE":
    """The network of the run, trained now if it is not finished."""
    from capspoe.config import preset
    from capspoe.run import checkpoint
    from capspoe.run.model import CapsulePoE
    from capspoe.training.train import train_run

    run = a.run or a.out / "run"
    if a.run or (checkpoint.numbered(run) and checkpoint.newest(run).state.stage == checkpoint.DONE):
        model = CapsulePoE.load(run)
        if a.groups not in (None, model.top.upper[0]):
            raise InputError(f"{run} has {model.top.upper[0]} groups; choose another --out for {a.groups}")
        return model
    config = preset("small", str(a.folder)).replace(layers=f"{a.groups or 20}x16", size=a.size, skip_bad=True)
    return train_run(config, run).model


def odd_ones(error: Any) -> Any:
    """Which reconstruction errors are far outliers, (n,): Tukey's outer fence, on a logarithmic scale."""
    import numpy as np

    logarithm = np.log(np.maximum(error, 1e-9))
    low, high = np.quantile(logarithm, [0.25, 0.75])
    return logarithm > high + FENCES * (high - low)


def in_groups(table: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The files of each group, the most typical first."""
    rows = sorted(
        zip(table["group"], table["typicality"], table["file"], strict=True), key=lambda r: (r[0], -r[1])
    )
    names = sorted(set(table["group"]))
    return [(name, [file for group, _, file in rows if group == name]) for name in names]


def write_page(table: dict[str, Any], folder: Path, out: Path) -> None:
    from urllib.parse import quote

    from jinja2 import Environment, StrictUndefined

    from capspoe.run.atomic import disk_errors, write_atomic

    def address(file: str) -> str:
        return quote(
            os.fsencode(os.path.relpath(folder.resolve() / file, out.resolve()).replace(os.sep, "/"))
        )

    groups = [(name, [(file, address(file)) for file in files]) for name, files in in_groups(table)]
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(PAGE)
    text = page.render(folder=folder.resolve().name, count=len(table["file"]), groups=groups, odd=ODD)
    with disk_errors(out):
        write_atomic(out / "index.html", text.encode(errors="replace"))


def place_files(table: dict[str, Any], folder: Path, out: Path, copy: bool) -> None:
    """Fill OUT/<group> with links or copies; the path below the folder becomes part of the name."""
    import shutil

    from capspoe.run.atomic import disk_errors

    if there := [name for name in sorted(set(table["group"])) if (out / name).exists()]:
        raise InputError(
            f"{out / there[0]} exists already; remove the groups of the last time, or choose another --out"
        )
    with disk_errors(out):
        for group, file in zip(table["group"], table["file"], strict=True):
            target = out / group / file.replace("/", "__")
            target.parent.mkdir(exist_ok=True)
            if copy:
                shutil.copy2(folder / file, target)
            else:
                target.symlink_to((folder / file).resolve())
