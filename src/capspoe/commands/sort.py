"""`capspoe sort`."""

import os
import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import tyro

from capspoe.commands.arguments import command, command_line, open_for_run
from capspoe.config import preset
from capspoe.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from capspoe.data import Dataset
    from capspoe.run.model import CapsulePoE

ODD = "odd"  # the group of images that the network reconstructs poorly
FENCES = 3.0  # of the logarithm of the error: quartile distances above the upper quartile
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
        reason = "so that what is written is not sorted the next time"
        raise InputError(f"--out must be outside {folder}, {reason}")
    import numpy as np

    from capspoe.atomic import disk_errors
    from capspoe.commands.encode import columns, encoded_blocks, write_table

    network = run or out / "run"
    model = find_model(network, folder, groups, size, train=run is None)
    dataset = open_for_run(model, network, str(folder), "all")
    known = None if run else training_groups(model, network, dataset)
    table = columns(dataset, encoded_blocks(model, dataset, errors=True), known)
    odd = odd_ones(np.array(table.pop("error")))
    group_of = []
    for is_odd, capsule in zip(odd, table.pop("capsule"), strict=True):
        group_of.append(ODD if is_odd else f"group-{capsule:02d}")
    table = {"file": table.pop("file"), "group": group_of, **table}

    # The clearest groups come first, and in each group the most typical images.
    typicality = np.array(table["typicality"])
    clarity = {name: typicality[np.array(group_of) == name].mean() for name in set(group_of)}
    clearest_first = sorted(clarity, key=lambda name: (-clarity[name], name))
    files: dict[str, list[str]] = {name: [] for name in clearest_first}
    for row in np.argsort(-typicality, kind="stable").tolist():
        files[group_of[row]].append(table["file"][row])

    if link or copy:
        for name in files:
            if (out / name).exists():
                advice = "remove the old groups, or choose another --out"
                raise InputError(f"{out / name} exists already; {advice}")
    write_table(table, out / "groups.csv")
    with disk_errors(out):
        write_page(files, folder.resolve(), out)
        if link or copy:
            write_folders(files, folder.resolve(), out, copy)
    count = len(set(group_of) - {ODD})
    print(f"{len(group_of)} images in {count} groups; odd ones out: {group_of.count(ODD)}")
    print(out / "index.html")
    print(out / "groups.csv")
    print(f"  next      {command_line('explore', network)}")


def write_folders(groups: dict[str, list[str]], folder: Path, out: Path, copy: bool) -> None:
    """Make a folder for each group, with copies of its images or links to them."""
    for name, images in groups.items():
        (out / name).mkdir()
        for file in images:
            source = folder / file
            target = out / name / file.replace("/", "__")
            if copy:
                shutil.copy2(source, target)
            else:
                target.symlink_to(source)


def find_model(run: Path, folder: Path, groups: int | None, size: int | None, train: bool) -> "CapsulePoE":
    """The network of the run; with `train`, train it now unless it is finished."""
    from capspoe.run import checkpoint
    from capspoe.run.model import CapsulePoE
    from capspoe.run.train import train_run

    finished = False
    if train and checkpoint.numbered(run):
        finished = checkpoint.newest(run).state.stage == checkpoint.DONE
    if train and not finished:
        layers = f"{groups or 'auto'}x16"
        config = preset("small", str(folder)).replace(layers=layers, size=size, skip_bad=True)
        return train_run(config, run).model
    model = CapsulePoE.load(run)
    if groups not in (None, model.top.upper[0]):
        raise InputError(f"{run} has {model.top.upper[0]} groups; choose another --out for {groups}")
    return model


def training_groups(model: "CapsulePoE", run: Path, dataset: "Dataset") -> "np.ndarray":
    """The group of each image that was clustered in training, (n,); -1 for others.

    The network has an opinion of these images too, but the groups are what it was taught.
    """
    import numpy as np

    from capspoe.run import checkpoint

    capsule = np.full(len(dataset), -1)
    groups = checkpoint.newest(run).optimizer.get("gate_targets")
    trained = open_for_run(model, run, None, "train").file_names
    # Files may have come or gone since; then only the network knows.
    if groups is None or trained is None or len(trained) != len(groups):
        return capsule
    group_of_file = dict(zip(trained, groups.tolist(), strict=True))
    for row, file in enumerate(dataset.file_names or []):
        capsule[row] = group_of_file.get(file, -1)
    return capsule


def odd_ones(error: Any) -> Any:
    """Which reconstruction errors are far outliers, (n,): Tukey's outer fence, on a logarithmic scale."""
    import numpy as np

    logarithm = np.log(np.maximum(error, 1e-9))
    low, high = np.quantile(logarithm, [0.25, 0.75])
    return logarithm > high + FENCES * (high - low)


def write_page(groups: dict[str, list[str]], folder: Path, out: Path) -> None:
    """Write contact sheets that show the images where they are."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from capspoe.atomic import write_atomic

    def address(file: str) -> str:
        relative = os.path.relpath(folder / file, out.resolve())
        return quote(os.fsencode(relative.replace(os.sep, "/")))

    shown = []
    for name, images in groups.items():
        shown.append((name, [(file, address(file)) for file in images]))
    style = Markup((resources.files("capspoe.report") / "style.css").read_text(encoding="utf-8"))
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(PAGE)
    count = sum(map(len, groups.values()))
    text = page.render(folder=folder.name, count=count, groups=shown, odd=ODD, style=style)
    write_atomic(out / "index.html", text.encode(errors="replace"))
