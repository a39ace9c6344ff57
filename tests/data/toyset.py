"""A toy data set of two small idx files."""

import gzip
import hashlib

import numpy as np

from capspoe.data import CATALOGUE, Entry
from capspoe.data.catalogue import CachedFile, Site
from capspoe.data.formats import encode_idx

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8)
LABELS = (np.arange(40) % 10).astype(np.uint8)
FILES = {"train-images-idx3-ubyte": encode_idx(PIXELS), "train-labels-idx1-ubyte": encode_idx(LABELS)}
WEB = {f"/{name}.gz": gzip.compress(data) for name, data in FILES.items()}


def toy_entry(*downloads):
    files = [CachedFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items()]
    return Entry("toy", "none", 40, 0, (28, 28, 1), (), "idx", tuple(files), tuple(downloads))


def register(*urls):
    """Put the toy data set into the catalogue, with one site for each address."""
    CATALOGUE["toy"] = toy_entry(*(Site(f"site {k}", url) for k, url in enumerate(urls)))
