"""`capspoe sort`."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from capspoe.commands.arguments import command, command_line, open_for_run
from capspoe.commands.images import open_given_images
from capspoe.config import preset
from capspoe.errors import InputError

if TYPE_CHECKING:
    from capspoe.data import Dataset
    from capspoe.sorting.outputs import Arrangement
    from capspoe.sorting.sorter import Sorted

FENCES = 3.0  # of the logarithm of the error: quartile distances above the upper quartile


@command
def sort(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER", help="The images.")],
    out: Path,
    groups: int | None = None,
    features: Literal["auto", "outlines", "photos"] = "auto",
    link: bool = False,
    copy: bool = False,
    regroup: bool = False,
    embed: bool = False,
    train: bool = False,
    size: int | None = None,
    run: Path | None = None,
) -> None:
    """Sort a folder of images into groups that look alike, without labels.

    Writes OUT/index.html, which shows every group, OUT/groups.csv and OUT/groups.json. Run it again after adding
    images: only new ones are read, and groups keep their names. Name groups and move images in OUT/edits.csv. Your
    images are never moved, changed or deleted.

    Args:
        out: The folder to write to.
        groups: Number of groups, without the group of odd images (default: estimated from the images).
        features: What to compare. outlines: shapes and colours. photos: what images show, by a network that learned
            from ImageNet's labels (pip install 'capspoe[photos]'). auto looks at the images.
        link: Also make a folder of links for each group.
        copy: Also make a folder of copies for each group.
        regroup: Group all images again, for when many have been added.
        embed: Put the thumbnails into index.html, so that you can send the page as one file.
        train: Also train a capsule for each group in OUT/run: poses in the table, samples, reconstructions.
        size: With --train, resize images to this many pixels for the network (default: as `capspoe train`).
        run: Group by the capsules of this run instead.
    """
    began = time.monotonic()
    check_options(folder, out, groups, link=link, copy=copy, train=train, size=size, run=run)
    from capspoe.commands.sort_progress import TerminalProgress

    progress = TerminalProgress(", then training" if train else " in all")
    folder = folder.resolve()
    with progress:
        # Loading the libraries takes seconds, so the first estimate comes before them.
        if not (out / "cache" / "images.npz").exists():
            progress.guess(folder)
        from capspoe.atomic import disk_errors
        from capspoe.commands.encode import write_table
        from capspoe.sorting.edits import read_edits, write_edits
        from capspoe.sorting.membership import set_of
        from capspoe.sorting.outputs import arrange, files_by_group, ids_of, rows_of, write_folders, write_json
        from capspoe.sorting.page import write_page
        from capspoe.sorting.reading import describe_unread
        from capspoe.sorting.settings import Settings
        from capspoe.sorting.sorter import sort_folder

        # A mistake in it is an error before new images are taken into the cache.
        read_edits(out / "edits.csv", set(), set())
        result = sort_folder(folder, out, Settings(groups, features, regroup), progress)
    here = len(set_of(result.groups.group))
    if groups is not None and here < groups:
        progress.info(f"{groups} groups were asked for; {here} is all that these {len(result.library):,} images have")
    skipped = describe_unread(result.library.unread, result.unsupported)
    if skipped:
        progress.info(f"skipped: {skipped}")
    extra: dict[str, Any] = {}
    if run is not None:
        extra = group_by_capsules(result, run, folder)
    ids = ids_of(result)
    edits = read_edits(out / "edits.csv", set(ids), set(result.groups.names))
    if edits.unknown:
        count = len(edits.unknown)
        lines = "1 line names" if count == 1 else f"{count} lines name"
        progress.info(f"edits.csv: {lines} no group or image, such as {edits.unknown[0]}")
    arrangement = arrange(result, edits)
    if link or copy:
        files = files_by_group(result, arrangement)
        write_folders(files, folder, out, "copy" if copy else "link", out / "cache")
    if train:
        extra = train_capsules(result, arrangement, folder, out / "run", size)
    rows = rows_of(result, arrangement, edits)
    add_columns(rows, extra)
    write_table({name: [row[name] for row in rows] for name in rows[0]}, out / "groups.csv")
    with disk_errors(out):
        write_json(result, arrangement, rows, out / "groups.json")
        write_page(result, arrangement, edits, skipped, out, embed)
        write_edits(out / "edits.csv", edits, ids)
    print(summary(result, arrangement, time.monotonic() - began))
    print(out / "index.html")
    print(out / "groups.csv")
    if run is not None or train:
        print(f"  next      {command_line('explore', run or out / 'run')}")
    else:
        print(f"  next      name groups in {out / 'edits.csv'} and run this again; --train adds poses and samples")


def check_options(
    folder: Path,
    out: Path,
    groups: int | None,
    *,
    link: bool,
    copy: bool,
    train: bool,
    size: int | None,
    run: Path | None,
) -> None:
    """Refuse what cannot be done, before anything is read."""
    if link and copy:
        raise InputError("choose --link or --copy, not both")
    if train and run is not None:
        raise InputError("choose --train or --run, not both: --run uses a network that is trained already")
    if size is not None and not train:
        raise InputError("--size is for the network; use it with --train")
    if groups is not None and groups < 1:
        raise InputError(f"--groups is {groups}; it must be at least 1")
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of images")
    if run is not None:
        from capspoe.run import checkpoint
        from capspoe.run.bundled import find_run

        checkpoint.open_run(find_run(run))
    sorted_before = any((out / name).exists() for name in ("groups.json", "edits.csv", "cache"))
    for name in ("index.html", "groups.csv"):
        if (out / name).exists() and not sorted_before:
            raise InputError(f"{out / name} was not written by capspoe sort; choose another folder for --out")
    if out.resolve().is_relative_to(folder.resolve()):
        reason = "so that what is written is not sorted the next time"
        raise InputError(f"--out must be outside {folder}, {reason}")


def summary(result: "Sorted", arrangement: "Arrangement", seconds: float) -> str:
    """One line about what was found."""
    import numpy as np

    duplicates = result.duplicates
    copies = int((duplicates.first != np.arange(len(duplicates.first))).sum())
    exact = int(duplicates.exact.sum())
    count = len(arrangement.names)
    parts = [f"{len(result.library):,} images in {count} group{'' if count == 1 else 's'}"]
    parts.append(f"odd ones out: {int((arrangement.group < 0).sum())}")
    if copies:
        parts.append(f"there twice: {exact} exactly, {copies - exact} nearly")
    if result.new:
        parts.append(f"new: {len(result.new)}")
    return f"{'; '.join(parts)} ({seconds:.0f} s)"


def add_columns(rows: list[dict[str, Any]], columns: dict[str, dict[str, Any]]) -> None:
    """Add columns, each a value by file, to the rows of the table."""
    for name, values in columns.items():
        for row in rows:
            row[name] = values[row["file"]]


def group_by_capsules(result: "Sorted", run: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Replace the groups by the capsules of a run; returns its columns of the table."""
    import numpy as np

    from capspoe.commands.encode import columns, encoded_blocks
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run)
    given = open_given_images(model, run, [str(folder)], "all")
    given.dataset = in_order(given.dataset, result.groups.names)
    table = columns(given.dataset, encoded_blocks(model, given.dataset, errors=True))
    error = np.array(table["error"])
    groups = result.groups
    groups.group = np.where(odd_ones(error), -1, np.array(table["capsule"]))
    groups.probability = np.array(table["probability"])
    given.note_errors(0, error)
    given.announce()
    return pose_columns(table)


def train_capsules(
    result: "Sorted", arrangement: "Arrangement", folder: Path, run: Path, size: int | None
) -> dict[str, dict[str, Any]]:
    """Train a capsule for each group, unless that is done; returns the columns of the table that it gives."""
    import numpy as np

    from capspoe.commands.encode import columns, encoded_blocks
    from capspoe.data import open_dataset
    from capspoe.run.train import train_run

    rows = np.flatnonzero(arrangement.group >= 0)
    names = [result.groups.names[row] for row in rows.tolist()]
    images = in_order(open_dataset(folder, "all", size=size), names)
    config = preset("small", str(folder)).replace(layers=f"{len(arrangement.names)}x16", size=size, skip_bad=True)
    model = train_run(config, run, given=images, groups=arrangement.group[rows]).model
    own_images = in_order(open_for_run(model, run, None, "all"), result.groups.names)
    blocks = encoded_blocks(model, own_images, errors=True)
    return pose_columns(columns(own_images, blocks, arrangement.group))


def in_order(dataset: "Dataset", names: list[str]) -> "Dataset":
    """The images of a folder with these names, in their order."""
    import numpy as np

    from capspoe.data import Subset

    place = {name: k for k, name in enumerate(dataset.file_names or [])}
    return Subset(dataset, np.array([place[name] for name in names]))


def pose_columns(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Columns of the table from `capspoe encode`, by file."""
    wanted = [name for name in table if name in ("capsule", "error") or name.startswith("pose_")]
    return {name: dict(zip(table["file"], table[name], strict=True)) for name in wanted}


def odd_ones(error: Any) -> Any:
    """Which reconstruction errors are far outliers, (n,): Tukey's outer fence, on a logarithmic scale."""
    import numpy as np

    logarithm = np.log(np.maximum(error, 1e-9))
    low, high = np.quantile(logarithm, [0.25, 0.75])
    return logarithm > high + FENCES * (high - low)
