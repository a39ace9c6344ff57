"""`capspoe sort`."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from capspoe.commands.arguments import command, command_line, open_for_run
from capspoe.errors import InputError

if TYPE_CHECKING:
    from capspoe.run.model import CapsulePoE

ODD = "odd"  # the group of images that the network reconstructs poorly
FENCES = 3.0  # interquartile ranges above the upper quartile, of the logarithm of the error
PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ folder }}, sorted</title><link rel="icon" href="data:,">
<style>{{ style }}
section { margin-top: 32px; } nav { text-align: center; }
.grid, nav { display: grid; grid-template-columns: repeat(auto-fill, minmax(84px, 1fr)); gap: 10px 4px; }
.grid small { display: block; font-size: .74rem; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
img { aspect-ratio: 1; object-fit: contain; image-rendering: auto; background: var(--card); border-radius: 6px; }
</style></head><body>
<h1>{{ folder }}, sorted</h1>
<p>{{ count }} images in groups that look alike, found without labels. The clearest groups and the most typical images
come first. <a href="groups.csv">groups.csv</a> has every image with its group, probability, typicality and pose.</p>
<nav>{% for name, images in groups %}<a href="#{{ name }}"><img src="{{ images[0][1] }}" alt="">{{ name }}</a>
{% endfor %}</nav>{% for name, images in groups %}
<section id="{{ name }}"><h2>{{ name }}</h2>
<p class="quiet">{{ images | length }} images{% if name == odd %} that look like no group{% endif %}</p>
<div class="grid">{% for file, address in images %}
<div><a href="{{ address }}"><img loading="lazy" src="{{ address }}" alt=""></a>
<small title="{{ file }}">{{ file }}</small></div>
{%- endfor %}</div></section>{% endfor %}</body></html>
"""


@command
def sort(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER", help="The images.")],
    out: Path,
    groups: int | None = None,
    link: bool = False,
    copy: bool = False,
    size: int | None = None,
    run: Path | None = None,
) -> None:
    """Sort a folder of images into groups that look alike, without labels.

    Trains a network in OUT/run first, unless a finished one is there. Writes OUT/groups.csv and OUT/index.html, which
    shows every group. Your images are never moved, changed or deleted.

    Args:
        out: The folder to write to.
        groups: Number of groups, without the group of odd images (default: estimated from the images).
        link: Also make a folder of links for each group.
        copy: Also make a folder of copies for each group.
        size: Resize images to this many pixels for the network (default: as `capspoe train`).
        run: Use this run instead of training one.
    """
    if link and copy:
        raise InputError("choose --link or --copy, not both")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of images")
    if out.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"--out must be outside {folder}, so that what is written is not sorted the next time")
    import numpy as np

    from capspoe.atomic import disk_errors
    from capspoe.commands.encode import columns, encoded_blocks, write_table

    network = run or out / "run"
    model = find_model(network, folder, groups, size, train=run is None)
    dataset = open_for_run(model, network, str(folder), "all")
    table = columns(dataset, encoded_blocks(model, dataset, errors=True))
    odd, capsules = odd_ones(np.array(table.pop("error"))), table.pop("capsule")
    names = [ODD if is_odd else f"group-{j:02d}" for is_odd, j in zip(odd, capsules, strict=True)]
    table = {"file": table.pop("file"), "group": names, **table}
    typical, group = np.array(table["typicality"]), np.array(names)
    clearest = sorted(set(names), key=lambda name: (-typical[group == name].mean(), name))
    files: dict[str, list[str]] = {name: [] for name in clearest}
    for row in np.argsort(-typical, kind="stable").tolist():
        files[names[row]].append(table["file"][row])
    if there := [name for name in files if (link or copy) and (out / name).exists()]:
        raise InputError(f"{out / there[0]} exists already; remove the old groups, or choose another --out")
    write_table(table, out / "groups.csv")
    with disk_errors(out):
        write_page(files, folder.resolve(), out)
        for name, images in files.items() if link or copy else ():
            (out / name).mkdir()
            for file in images:
                source, target = folder.resolve() / file, out / name / file.replace("/", "__")
                shutil.copy2(source, target) if copy else target.symlink_to(source)
    print(f"{len(names)} images in {len(set(names) - {ODD})} groups; odd ones out: {names.count(ODD)}")
    print(out / "index.html", out / "groups.csv", f"  next      {command_line('explore', network)}", sep="\n")


def find_model(run: Path, folder: Path, groups: int | None, size: int | None, train: bool) -> "CapsulePoE":
    """The network of the run; with `train`, train it now unless it is finished."""
    from capspoe.config import preset
    from capspoe.run import checkpoint
    from capspoe.run.model import CapsulePoE
    from capspoe.run.train import train_run

    if train and not (checkpoint.numbered(run) and checkpoint.newest(run).state.stage == checkpoint.DONE):
        config = preset("small", str(folder)).replace(layers=f"{groups or 'auto'}x16", size=size, skip_bad=True)
        return train_run(config, run).model
    model = CapsulePoE.load(run)
    if groups not in (None, model.top.upper[0]):
        raise InputError(f"{run} has {model.top.upper[0]} groups; choose another --out for {groups}")
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

    from capspoe.atomic import write_atomic

    def address(file: str) -> str:
        return quote(os.fsencode(os.path.relpath(folder / file, out.resolve()).replace(os.sep, "/")))

    shown = [(name, [(file, address(file)) for file in images]) for name, images in groups.items()]
    style = Markup((files("capspoe.report") / "style.css").read_text(encoding="utf-8"))
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(PAGE)
    text = page.render(folder=folder.name, count=sum(map(len, groups.values())), groups=shown, odd=ODD, style=style)
    write_atomic(out / "index.html", text.encode(errors="replace"))
