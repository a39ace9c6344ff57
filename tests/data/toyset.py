"""A data set of two small idx files with any sources one likes: the chain is tested on real bytes."""

import gzip
import hashlib

import numpy as np

from capspoe.data import entries
from capspoe.data.idx import encode_idx
from capspoe.data.sources import Site
from capspoe.data.unpack import unpack_gz

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8)
LABELS = (np.arange(40) % 10).astype(np.uint8)
FILES = {
    "train-images-idx3-ubyte": encode_idx(PIXELS),
    "train-labels-idx1-ubyte": encode_idx(LABELS),
}
WEB = {f"/{name}.gz": gzip.compress(data) for name, data in FILES.items()}


def toy_entry(*sources):
    files = tuple(
        entries.CanonicalFile(name, len(data), hashlib.sha256(data).hexdigest())
        for name, data in FILES.items()
    )
    return entries.Entry("toy", 40, 0, (28, 28, 1), (), "none", "made here", files, sources)


def register(*urls):
    """Puts the toy set into the catalogue, with one site per address."""
    entries.ENTRIES["toy"] = toy_entry(*(Site(f"site {k}", url, unpack_gz) for k, url in enumerate(urls)))
