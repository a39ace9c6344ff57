"""Images for training: data sets with a name, which are downloaded, and your own folders and arrays.

>>> pixels, labels = capspoe.data.load("digits", "test")
>>> dataset = capspoe.data.open_dataset("photos/", size=28)  # decoded on demand
"""

from capspoe.data.catalogue import CATALOGUE, Entry, cache_dir, info
from capspoe.data.datasets import ArrayDataset, Dataset, Images, MapStyle, SequenceDataset, Subset, workers_for
from capspoe.data.downloads import fetch, verify
from capspoe.data.folders import FolderDataset
from capspoe.data.loading import absolute, load, open_dataset, open_for
from capspoe.data.preprocess import Prepare
from capspoe.data.splits import evenly_spaced

__all__ = [
    "CATALOGUE", "ArrayDataset", "Dataset", "Entry", "FolderDataset", "Images", "MapStyle", "Prepare",
    "SequenceDataset", "Subset", "absolute", "cache_dir", "evenly_spaced", "fetch", "info", "load",
    "open_dataset", "open_for", "verify", "workers_for",
]  # fmt: skip
