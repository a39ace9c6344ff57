"""Images for training: data sets with a name, which are downloaded, and your own folders and arrays.

>>> pixels, labels = capspoe.data.load("digits", "test")
>>> dataset = capspoe.data.open_dataset("photos/", size=28)  # decoded on demand
"""

from capspoe.data.arrays import from_array
from capspoe.data.catalogue import CATALOGUE, Entry, cache_dir, info
from capspoe.data.datasets import ArrayDataset, Dataset, Images, Subset, workers_for
from capspoe.data.downloads import fetch, verify
from capspoe.data.folders import FolderDataset
from capspoe.data.given import STANDARD_INPUT, Likeness
from capspoe.data.loading import absolute, join_names, load, names_in, open_dataset, open_for, open_given
from capspoe.data.preprocess import Prepare
from capspoe.data.sequences import MapStyle, SequenceDataset
from capspoe.data.splits import evenly_spaced

__all__ = [
    "CATALOGUE", "STANDARD_INPUT", "ArrayDataset", "Dataset", "Entry", "FolderDataset", "Images", "Likeness",
    "MapStyle", "Prepare", "SequenceDataset", "Subset", "absolute", "cache_dir", "evenly_spaced", "fetch",
    "from_array", "info", "join_names", "load", "names_in", "open_dataset", "open_for", "open_given",
    "verify", "workers_for",
]  # fmt: skip
