"""Open images by the name of a data set or by a path."""

import json
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from capspoe.data.arrays import open_npy, open_npz
from capspoe.data.catalogue import CATALOGUE, did_you_mean
from capspoe.data.datasets import ArrayDataset, Dataset, Images
from capspoe.data.downloads import fetch
from capspoe.data.folders import FolderDataset, complete, list_images, open_folder
from capspoe.data.formats import READERS, BadImage, probe
from capspoe.data.given import FROM_PYTHON, STANDARD_INPUT, Joined, Likeness, Pictures, read_standard_input
from capspoe.data.preprocess import Prepare, Size
from capspoe.data.splits import SPLITS, hash_names, split_rows
from capspoe.errors import CapspoeWarning, DataError, InputError

ARRAYS = (".npy", ".npz")
WHAT = {"train": "training images", "test": "test images", "all": "images"}  # what the images of a split are called


def load(name_or_path: str | os.PathLike[str], split: str = "train", **options: Any) -> Images:
    """Return all images of a split: pixels uint8 (n, H, W, C) and labels int64 (n,) or None.

    The options are those of `open_dataset`, which does not need memory for all images.
    """
    return open_dataset(name_or_path, split, **options).images(options.get("workers", 0))


def open_dataset(
    name_or_path: str | os.PathLike[str],
    split: str = "train",
    *,
    size: Size = None,
    crop: Size = None,
    colour: str | None = None,
    offline: bool = False,
    skip_bad: bool = False,
    workers: int = 0,
) -> Dataset:
    """Open images with random access.

    Parameters
    ----------
    name_or_path : a name in `CATALOGUE`, a folder of images, an image file, an .npy or an .npz; several with the
        separator of the variable PATH between them, as `join_names` puts it
    split : train, test or all
    size : resize to this many pixels, or to (height, width)
    crop : then cut out the centre
    colour : grey, rgb or None to keep it
    offline : never download
    skip_bad : decode everything now and leave out unreadable images, with a warning; otherwise they are an error when
        they are read
    workers : threads that decode for `skip_bad`
    """
    if split not in SPLITS:
        raise InputError(f"split is {split!r}; choose train, test or all")
    names = names_in(os.fspath(name_or_path))
    dataset = open_given(names, Prepare.of(size, crop, colour), split, offline)
    if skip_bad and dataset.decodes:
        return dataset.without_failures(workers)
    return dataset


def _open(name_or_path: str, split: str, prepare: Prepare, offline: bool) -> Dataset:
    if name_or_path in CATALOGUE:
        fetch(name_or_path, offline)
        entry = CATALOGUE[name_or_path]
        pixels, labels = READERS[entry.format](entry, split)
        named = ArrayDataset(pixels, labels, entry.classes, prepare=prepare)
        named.verified = True  # by `fetch`
        dataset: Dataset = named
    else:
        dataset = _open_path(name_or_path, split, prepare)
    dataset.what = WHAT[split]
    return dataset


def open_given(names: Sequence[str], prepare: Prepare, split: str = "all", offline: bool = True) -> Dataset:
    """Open images that a person names: data sets, files, folders, .npy, .npz, or "-" for standard input.

    Several of them become one data set without labels, with the names as they were given.
    """
    paths = [str(read_standard_input()) if name == STANDARD_INPUT else name for name in names]
    if len(paths) == 1:
        return _open(paths[0], split, prepare, offline)
    pictures = _pictures(paths)
    if pictures and not isinstance(prepare, Likeness):
        prepare = complete(prepare, Path(), pictures)
    files = set(_files_of_split([path for path in paths if _is_picture(path)], split))
    parts: list[Dataset] = []
    titles = []
    # Files in a row are one data set: there may be thousands.
    for are_files, members in groupby(zip(names, paths, strict=True), lambda pair: _is_picture(pair[1])):
        if are_files:
            chosen = [path for _, path in members if path in files]
            if chosen:
                parts.append(_open_files(chosen, prepare))
                titles.append("")
            continue
        for name, path in members:
            parts.append(_open(path, split, prepare, offline))
            titles.append(name)
    joined = Joined(parts, titles)
    joined.what = WHAT[split]
    return joined


def _is_picture(path: str) -> bool:
    """Whether a path is that of an image file, by what it is not."""
    return os.path.isfile(os.path.expanduser(path)) and Path(path).suffix.lower() not in ARRAYS


def _pictures(paths: Sequence[str]) -> list[str]:
    """All image files that are named, and those in folders that are."""
    pictures = []
    for path in map(os.path.expanduser, paths):
        if _is_picture(path):
            pictures.append(path)
        elif os.path.isdir(path):
            pictures += [os.path.join(path, name) for name in list_images(Path(path))]
    return pictures


def _files_of_split(paths: list[str], split: str) -> list[str]:
    """The files of a split, by their names without the folders, which may move. A file among folders is no test."""
    if split == "all" or not paths:
        return paths
    if len(paths) == 1:
        return paths if split == "train" else []
    hashes = hash_names(os.fsencode(os.path.basename(path)) for path in paths)
    return [paths[row] for row in split_rows(hashes, split, "these files").tolist()]


def _open_files(paths: list[str], prepare: Prepare) -> Dataset:
    """Image files as one data set."""
    names = [os.path.expanduser(path) for path in paths]
    if isinstance(prepare, Likeness):
        return Pictures(Path(), names, prepare)
    return FolderDataset(Path(), names, prepare)


def open_for(
    config: Any,
    image: tuple[int, int, int],
    images: str | Sequence[str] | None = None,
    split: str = "test",
    run: Path | None = None,
    prepare: Prepare | None = None,
) -> Dataset:
    """Open images as a trained network expects them: the run's own, or `images` by name or path.

    Parameters
    ----------
    config : the settings of the run
    image : (H, W, C) of the network
    images : one or several, as for `open_given`; None for the run's own
    split : train, test or all
    run : its folder; warns if the run's data set holds other images than those it was trained on
    prepare : how to preprocess images that are not the run's own, such as a `Likeness`. By default they are resized
        and their colour is converted, with a warning.
    """
    names = [images] if isinstance(images, str) else list(images or ())
    height, width, channels = image
    own = not names and config.data not in CATALOGUE
    if own:
        if config.data == FROM_PYTHON:
            advice = "name images, or save them with numpy.save and train on the file"
            raise InputError(f"the run was trained on images from Python, which are not kept; {advice}")
        for name in names_in(config.data):
            if not os.path.exists(os.path.expanduser(name)):
                advice = "if they moved, say where to: `encode RUN PLACE`, or --data PLACE"
                raise InputError(f"the run's images were in {name!r}, which is not there; {advice}")
    if own and run is not None:
        warn_if_changed(config, run)
    # Other images are resized to the network's, unless it was trained on crops of larger ones.
    size: Size = (height, width)
    if not names or config.crop:
        size = config.size
    plain = Prepare.of(size, config.crop and (height, width), {1: "grey", 3: "rgb"}.get(channels))
    dataset = open_given(names or names_in(config.data), prepare if names and prepare else plain, split)
    if names:
        warn_of_conversion(names, dataset.shape)
    if config.skip_bad and dataset.decodes:
        return dataset.without_failures()
    return dataset


def warn_of_conversion(names: Sequence[str], shape: tuple[int, int, int]) -> None:
    """Warn of arrays and data sets of another kind than the network's; pictures may be of any size and colour."""
    for name in names:
        if name not in CATALOGUE and Path(name).suffix.lower() not in ARRAYS:
            continue
        own_shape = open_dataset(name, "all", offline=True).shape
        if own_shape != shape:
            conversion = f"images of {_kind(own_shape)} are converted to {_kind(shape)}"
            warnings.warn(f"{name}: {conversion}", CapspoeWarning, stacklevel=3)


def _kind(shape: tuple[int, int, int]) -> str:
    height, width, channels = shape
    colour = "grey" if channels == 1 else "colour"
    return f"{height}x{width} {colour}"


def warn_if_changed(config: Any, run: Path) -> None:
    """Warn if the run was trained on other images than its data set holds now, by a sample of them."""
    if config.skip_bad:  # what is left out is known only once everything has been decoded
        return
    # A run that lacks the fingerprint, or has a damaged one, is not worth an error here.
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        stored = json.loads((run / "environment.json").read_bytes())["sample_sha256"]
        colour = None if config.colour == "keep" else config.colour
        training = open_dataset(config.data, "train", size=config.size, colour=colour)
        if config.limit is not None:
            training = training.first(config.limit)
        if stored != training.sample_fingerprint():
            problem = f"{config.data} holds other images than {run} was trained on"
            warnings.warn(problem, CapspoeWarning, stacklevel=3)


def absolute(names: str) -> str:
    """The name of a data set unchanged, or a path or several made absolute."""
    paths = []
    for name in names_in(names):
        path = os.path.expanduser(name)
        if name in CATALOGUE or not os.path.exists(path):
            paths.append(name)
        else:
            paths.append(os.path.abspath(path))
    return join_names(paths)


def join_names(names: Sequence[str]) -> str:
    """Several names as the one that a setting holds, with the separator of the variable PATH between them."""
    if len(names) > 1:
        for name in names:
            if os.pathsep in name:
                advice = "rename it, or give a folder"
                raise InputError(f"{name!r} has a {os.pathsep!r} in it, which separates several paths; {advice}")
    return os.pathsep.join(names)


def names_in(joined: str) -> list[str]:
    """The names that `join_names` has joined; a path that exists is one, whatever it is called."""
    if joined in CATALOGUE or os.path.exists(os.path.expanduser(joined)):
        return [joined]
    return joined.split(os.pathsep)


def _open_path(given: str, split: str, prepare: Prepare) -> Dataset:
    path = Path(os.path.expanduser(given))
    try:
        if not given or not path.exists():
            names = ", ".join(CATALOGUE)
            hint = did_you_mean(given)
            raise InputError(f"{given!r} is neither a data set ({names}) nor a file or folder{hint}")
        suffix = path.suffix.lower()
        if path.is_dir():
            folder = open_folder(path, split, prepare)
            if not isinstance(prepare, Likeness):
                return folder
            return Pictures(path.absolute(), folder.names(np.arange(len(folder))), prepare).labelled_as(folder)
        if suffix == ".npy":
            return open_npy(path, split, prepare)
        if suffix == ".npz":
            return open_npz(path, split, prepare)
        return open_file(path, prepare)
    except OSError as error:
        raise DataError(f"{str(path)[:200]}: cannot be read ({error.strerror or error})") from error


def open_file(path: Path, prepare: Prepare) -> Dataset:
    """One image file, as a data set of one image."""
    try:
        size, has_colour = probe(path)
    except BadImage as error:
        hint = "give an image file, a folder of images, an .npy or an .npz"
        raise DataError(f"{path} cannot be read as an image ({error}); {hint}") from error
    if not isinstance(prepare, Likeness):
        colour = "rgb" if has_colour else "grey"
        prepare = replace(prepare, size=prepare.size or size, colour=prepare.colour or colour)
        return FolderDataset(path.absolute().parent, [path.name], prepare)
    return Pictures(path.absolute().parent, [path.name], prepare)
