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
<style>{{ style }}
section { margin-top: 32px; }
.grid { grid-template-columns: repeat(auto-fill, minmax(84px, 1fr)); }
.grid small { display: block; font-size: .74rem; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
img { aspect-ratio: 1; object-fit: contain; image-rendering: auto; background: var(--card); border-radius: 6px; }
</style></head><body>
<h1>{{ folder }}, sorted</h1>
<p>{{ count }} images in {{ groups | length }} groups, found without labels. The most typical images come first.
<a href="groups.csv">groups.csv</a> has every image with its group, probability, typicality and pose.</p>
<nav>{% for name, images in groups %}<a href="#{{ name }}">{{ name }} ({{ images | length }})</a>{% endfor %}</nav>
{% for name, images in groups %}
<section id="{{ name }}"><h2>{{ name }}</h2>
<p class="quiet">{{ images | length }} images{% if name == odd %} that look like no group{% endif %}</p>
<div class="grid">{% for file, address in images %}
<div><a href="{{ address }}"><img loading="lazy" src="{{ address }}" alt=""></a>
<small title="{{ file }}">{{ file }}</small></div>
{%- endfor %}</div></section>
{% endfor %}</body></html>
"""


@dataclass(frozen=True)
class Sort:
    """Sort a folder of images into groups that look alike, without labels.

    Trains a network in OUT/run first, unless a finished one is there. Writes OUT/groups.csv and OUT/index.html, which
    shows every group. Your images are never moved, changed or deleted.
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER", help="The folder of images.")]]
    out: Path
    """The folder to write to."""
    groups: int | None = None
    """Number of groups, not counting that of the odd ones out (default: found from the images)."""
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
        raise InputError(f"--out must be outside {a.folder}, so that what is written is not sorted the next time")
    import numpy as np

    from capspoe.commands.encode import columns, encoded_blocks, write_table
    from capspoe.data import open_for
    from capspoe.run.atomic import disk_errors

    run = a.run or a.out / "run"
    model = find_model(a, run)
    dataset = open_for(model.config, model.image, str(a.folder), "all")
    table = columns(dataset, encoded_blocks(model, dataset, errors=True))
    odd, capsules = odd_ones(np.array(table.pop("error"))), table.pop("capsule")
    names = [ODD if is_odd else f"group-{j:02d}" for is_odd, j in zip(odd, capsules, strict=True)]
    table = {"file": table.pop("file"), "group": names, **table}
    groups: dict[str, list[str]] = {name: [] for name in sorted(set(names))}
    for row in np.argsort(-np.array(table["typicality"]), kind="stable").tolist():
        groups[names[row]].append(table["file"][row])
    if there := [name for name in groups if (a.link or a.copy) and (a.out / name).exists()]:
        raise InputError(
            f"{a.out / there[0]} exists already; remove the groups of the last time, or choose another --out"
        )
    write_table(table, a.out / "groups.csv")
    with disk_errors(a.out):
        write_page(groups, a.folder.resolve(), a.out)
        if a.link or a.copy:
            place_files(groups, a.folder.resolve(), a.out, a.copy)
    print(f"{len(names)} images in {len(set(names) - {ODD})} groups, {names.count(ODD)} odd ones out")
    print(a.out / "index.html", a.out / "groups.csv", f"  next      {command_line('explore', run)}", sep="\n")


def find_model(a: Sort, run: Path) -> "CapsulePoE":
    """The network of the run, trained now if it is not finished."""
    from capspoe.config import preset
    from capspoe.run import checkpoint
    from capspoe.run.model import CapsulePoE
    from capspoe.training.train import train_run

    if not a.run and not (checkpoint.numbered(run) and checkpoint.newest(run).state.stage == checkpoint.DONE):
        config = preset("small", str(a.folder)).replace(layers=f"{a.groups or 'auto'}x16", size=a.size, skip_bad=True)
        return train_run(config, run).model
    model = CapsulePoE.load(run)
    if a.groups not in (None, model.top.upper[0]):
        raise InputError(f"{run} has {model.top.upper[0]} groups; choose another --out for {a.groups}")
    return model


def odd_ones(error: Any) -> Any:
    """Which reconstruction errors are far outliers, (n,): Tukey's outer fence, on a logarithmic scale."""
    import numpy as np

    logarithm = np.log(np.maximum(error, 1e-9))
    low, high = np.quantile(logarithm, [0.25, 0.75])
    return logarithm > high + FENCES * (high - low)


def write_page(groups: dict[str, list[str]], folder: Path, out: Path) -> None:
    """Write contact sheets that show the images where they are."""
    from importlib.resources import files
    from urllib.parse import quote

    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from capspoe.run.atomic import write_atomic

    def address(file: str) -> str:
        return quote(os.fsencode(os.path.relpath(folder / file, out.resolve()).replace(os.sep, "/")))

    shown = [(name, [(file, address(file)) for file in images]) for name, images in groups.items()]
    style = Markup((files("capspoe.report") / "style.css").read_text(encoding="utf-8"))
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(PAGE)
    count = sum(map(len, groups.values()))
    text = page.render(folder=folder.name, count=count, groups=shown, odd=ODD, style=style)
    write_atomic(out / "index.html", text.encode(errors="replace"))


def place_files(groups: dict[str, list[str]], folder: Path, out: Path, copy: bool) -> None:
    """Fill OUT/<group> with links or copies; the path below the folder becomes part of the name."""
    import shutil

    for name, images in groups.items():
        (out / name).mkdir()
        for file in images:
            target = out / name / file.replace("/", "__")
            shutil.copy2(folder / file, target) if copy else target.symlink_to(folder / file)
