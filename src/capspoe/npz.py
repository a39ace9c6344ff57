"""Arrays written to .npz piece by piece, so that memory does not grow with their length."""

import contextlib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from capspoe.durable import writing


@contextlib.contextmanager
def npz_writer(path: Path) -> Iterator["NpzWriter"]:
    """Write arrays under a temporary name; the file appears when all of them are in it."""
    temporary = path.with_name(f".{path.name}.writing")
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(temporary, "w") as archive:
                yield NpzWriter(archive)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


class NpzWriter:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive

    def add(self, name: str, array: np.ndarray) -> None:
        self.add_pieces(name, array.shape, array.dtype, [array])

    def add_pieces(
        self, name: str, shape: tuple[int, ...], dtype: np.dtype | type, pieces: Iterable[np.ndarray]
    ) -> None:
        """An array of the given shape from pieces that follow each other in memory order."""
        dtype = np.dtype(dtype)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        with self.archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(file, header)
            for piece in pieces:
                file.write(np.ascontiguousarray(piece, dtype).tobytes())
