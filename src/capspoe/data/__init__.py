"""Images for training: three data sets that are fetched, one that needs no network, and your own.

>>> pixels, labels = capspoe.data.load("digits", "test")
>>> source = capspoe.data.open_source("photos/", size=28)   # decoded when asked for
"""

from capspoe.data.cache import cache_dir
from capspoe.data.chain import FileStatus, Verification, fetch, verify
from capspoe.data.entries import CanonicalFile, Entry, catalog, info
from capspoe.data.images import Images
from capspoe.data.opening import load, open_source
from capspoe.data.prepare import Prepare
from capspoe.data.sequence import SequenceSource
from capspoe.data.source import Failure, Source

__all__ = [
    "CanonicalFile",
    "Entry",
    "Failure",
    "FileStatus",
    "Images",
    "Prepare",
    "SequenceSource",
    "Source",
    "Verification",
    "cache_dir",
    "catalog",
    "fetch",
    "info",
    "load",
    "open_source",
    "verify",
]
