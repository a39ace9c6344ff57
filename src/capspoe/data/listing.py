"""The image files under a folder, in an order that is the same everywhere, kept in a few dozen bytes each."""

import os
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from capspoe.data.decode import EXTENSIONS
from capspoe.errors import DataError

ENDINGS = frozenset(extension.encode() for extension in EXTENSIONS)


class Listing:
    """Relative paths with `/` between their parts, as one run of bytes with an 8-byte end for each."""

    def __init__(self, paths: Iterator[bytes]) -> None:
        text, ends = bytearray(), array("q", [0])
        for path in paths:
            text += path
            ends.append(len(text))
        self._text, self._ends = bytes(text), ends

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[bytes]:
        return (self._text[start:end] for start, end in pairwise(self._ends))

    def __getitem__(self, index: int) -> bytes:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._text[self._ends[index] : self._ends[index + 1]]


def list_images(root: Path) -> Listing:
    """Every image under a folder, by extension, sorted by the bytes of its relative path.

    Hidden files and folders are passed over. Links are followed, except back to a folder that is being
    walked.
    """
    return Listing(_walk(os.fsencode(root)))


def _walk(root: bytes) -> Iterator[bytes]:
    # Folders sort as `name/`: then walking folder by folder gives the order of the whole paths.
    stack = [iter(_entries(root, b"", ()))]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
            continue
        relative, inside = entry
        if inside is None:
            yield relative
        else:
            stack.append(iter(_entries(os.path.join(root, relative), relative, inside)))


def _entries(
    folder: bytes, prefix: bytes, above: tuple[tuple[int, int], ...]
) -> list[tuple[bytes, tuple[tuple[int, int], ...] | None]]:
    """(relative path, None) for an image; (relative path ending in /, folders above) for a folder."""
    try:
        status = os.stat(folder)
        here = (status.st_dev, status.st_ino)
        if here in above:
            return []
        found: list[tuple[bytes, tuple[tuple[int, int], ...] | None]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(b"."):
                    continue
                if entry.is_dir():
                    found.append((prefix + entry.name + b"/", (*above, here)))
                elif _is_image(entry.name):
                    found.append((prefix + entry.name, None))
    except OSError as error:
        raise DataError(f"{os.fsdecode(folder)}: cannot be listed ({error.strerror})") from error
    return sorted(found, key=lambda item: item[0])


def _is_image(name: bytes) -> bool:
    return name[name.rfind(b".") :].lower() in ENDINGS
