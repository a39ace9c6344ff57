"""Open images by the name of a data set or by a path."""

import json
import os
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from capspoe.data.arrays import open_npy, open_npz
from capspoe.data.catalogue import CATALOGUE, did_you_mean
from capspoe.data.datasets import ArrayDataset, Dataset, Images
from capspoe.data.downloads import fetch
from capspoe.data.folders import open_folder
from capspoe.data.formats import READERS
from capspoe.data.preprocess import Prepare, Size
from capspoe.data.splits import SPLITS
from capspoe.errors import CapspoeWarning, DataError, InputError


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
    name_or_path : a name in `CATALOGUE`, a folder of images, an .npy or an .npz
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
    prepare = Prepare.of(size, crop, colour)
    if isinstance(name_or_path, str) and name_or_path in CATALOGUE:
        fetch(name_or_path, offline)
        entry = CATALOGUE[name_or_path]
        pixels, labels = READERS[entry.format](entry, split)
        named = ArrayDataset(pixels, labels, entry.classes, prepare=prepare)
        named.verified = True  # by `fetch`
        return named
    dataset = _open_path(name_or_path, split, prepare)
    if skip_bad and dataset.decodes:
        return dataset.without_failures(workers)
    return dataset


def open_for(
    config: Any,
    image: tuple[int, int, int],
    images: str | None = None,
    split: str = "test",
    run: Path | None = None,
) -> Dataset:
    """Open images as a trained network expects them: the run's own, or `images` by name or path.

    `image` is the (H, W, C) of the network. Warns of images of another kind, which are converted, and if the run's
    data set holds other images than `run`, its folder, was trained on.
    """
    height, width, channels = image
    own = images is None and config.data not in CATALOGUE
    if own and not os.path.exists(os.path.expanduser(config.data)):
        advice = "if they moved, say where to: --data PLACE, or `encode RUN PLACE`"
        raise InputError(f"the run's images were in {config.data!r}, which is not there; {advice}")
    if own and run is not None:
        warn_if_changed(config, run)
    # Other images are resized to the network's, unless it was trained on crops of larger ones.
    size: Size = (height, width)
    if images is None or config.crop:
        size = config.size
    dataset = open_dataset(
        images or config.data,
        split,
        size=size,
        crop=config.crop and (height, width),
        colour={1: "grey", 3: "rgb"}.get(channels),
        skip_bad=config.skip_bad,
        offline=True,  # opening somebody's run must not download
    )
    if images is not None:
        own_shape = open_dataset(images, split, offline=True).shape
        if own_shape != image:
            conversion = f"images of {_kind(own_shape)} are converted to {_kind(image)}"
            warnings.warn(f"{images}: {conversion}", CapspoeWarning, stacklevel=2)
    return dataset


def _kind(shape: tuple[int, int, int]) -> str:
    height, width, channels = shape
    colour = "grey" if channels == 1 else "colour"
    return f"{height}x{width} {colour}"


def warn_if_changed(config: Any, run: Path) -> None:
    """Warn if the run was trained on other images than its data set holds now, by a sample of them."""
    # A run that lacks the fingerprint, or has a damaged one, is not worth an error here.
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        stored = json.loads((run / "environment.json").read_bytes())["sample_sha256"]
        colour = None if config.colour == "keep" else config.colour
        training = open_dataset(config.data, "train", size=config.size, colour=colour)
        if config.limit is not None:
            training = training.first(config.limit)
        if stored != training.sample_fingerprint() and not config.skip_bad:
            problem = f"{config.data} holds other images than {run} was trained on"
            warnings.warn(problem, CapspoeWarning, stacklevel=3)


def absolute(name_or_path: str) -> str:
    """The name of a data set unchanged, or a path made absolute."""
    path = os.path.expanduser(name_or_path)
    if name_or_path in CATALOGUE or not os.path.exists(path):
        return name_or_path
    return os.path.abspath(path)


def _open_path(given: str | os.PathLike[str], split: str, prepare: Prepare) -> Dataset:
    path = Path(os.path.expanduser(given))
    try:
        if not os.fspath(given) or not path.exists():
            names = ", ".join(CATALOGUE)
            hint = did_you_mean(str(given))
            raise InputError(f"{str(given)!r} is neither a data set ({names}) nor a file or folder{hint}")
        if path.is_dir():
            return open_folder(path, split, prepare)
        suffix = path.suffix.lower()
        if suffix == ".npy":
            return open_npy(path, split, prepare)
        if suffix == ".npz":
            return open_npz(path, split, prepare)
        raise InputError(f"{path}: give a folder of images, an .npy or an .npz")
    except OSError as error:
        raise DataError(f"{str(path)[:200]}: cannot be read ({error.strerror or error})") from error
