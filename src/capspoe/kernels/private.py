"""What the kernels need from PyTorch that no public interface offers.

There is one such thing. tests/kernels/test_private.py fails, and says why, when a version of PyTorch changes it; the
kernels then still give the same results, more slowly.
"""

import ctypes
import functools
from pathlib import Path

import torch

PAUSE = "omp_pause_resource_all"  # OpenMP 5.0
SOFT = 1  # omp_pause_soft: threads end, settings stay


def pause_openmp() -> None:
    """End the OpenMP threads that PyTorch's last operation left spinning; its next operation starts them again.

    Where PyTorch was imported before capspoe (see `capspoe.threads`), they spin for 8 ms, on the cores that the
    kernels' own threads want, and start in 0.1 ms. Without this a training step then takes half as long again.
    PyTorch has no function for it, and OMP_WAIT_POLICY would slow down PyTorch's own operations.
    """
    library = openmp()
    if library is not None and hasattr(library, PAUSE):
        getattr(library, PAUSE)(SOFT)


@functools.cache
def openmp() -> ctypes.CDLL | None:
    """The GNU OpenMP library inside PyTorch's Linux packages; None elsewhere."""
    folder = Path(torch.__file__).parent / "lib"
    for file in folder.glob("libgomp*"):
        return ctypes.CDLL(str(file))
    return None
