"""Numba functions that are compiled once and kept on disk, and work split over threads."""

import ctypes
import functools
import hashlib
import itertools
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import torch

_HERE = Path(__file__).parent
# Numba looks only at the file of a kept function, not at those whose functions it calls: all files count here
_VERSION = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.py")))).hexdigest()[:8]


def compiled(function: Callable[..., Any]) -> Any:
    """A numba function that releases the GIL, kept on disk. LLVM may fuse a product and a sum; NaN stays NaN."""
    function.__qualname__ += f"_{_VERSION}"  # part of the name of the file in which it is kept
    make = functools.partial(numba.njit, nogil=True, fastmath={"contract"}, error_model="numpy")
    try:
        return make(cache=True)(function)
    except RuntimeError:  # no folder for the cache can be written
        return make()(function)


def in_parallel(function: Any, count: int, *arguments: Any) -> None:
    """Call function(lo, hi, *arguments) on pieces of the range of `count`, several for each thread.

    A piece writes only its own results, and no sum crosses a border, so that neither the number of threads nor who
    takes which piece changes anything in the result. Threads of our own instead of numba's: several callers may run
    at once, a fork does no harm, and torch.set_num_threads counts.
    """
    _compile_first(function, arguments)
    threads = max(1, min(torch.get_num_threads(), count))
    pieces = min(count, 4 * threads) if threads > 1 else 1
    turn = itertools.count()

    def work() -> None:
        while (piece := next(turn)) < pieces:
            function(count * piece // pieces, count * (piece + 1) // pieces, *arguments)

    if threads > 1 and hasattr(library := _openmp(), "omp_pause_resource_all"):
        # PyTorch's last operation left threads spinning, 8 ms long, on the cores we want; its next one wakes them in
        # 0.1 ms. Without this a training step takes half as long again.
        library.omp_pause_resource_all(1)
    helpers = [_threads(threads - 1, os.getpid()).submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        if not helper.cancel():  # on a busy machine all may be done before a thread has begun
            helper.result()


@functools.cache
def _openmp() -> Any:
    """The GNU OpenMP library that comes with PyTorch on Linux."""
    library = next((Path(torch.__file__).parent / "lib").glob("libgomp*"), None)
    return ctypes.CDLL(str(library)) if library else None


@functools.cache
def _threads(count: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of its parent do not survive a fork."""
    return ThreadPoolExecutor(count, "capspoe-kernel")


def _compile_first(function: Any, arguments: tuple[Any, ...]) -> None:
    """Compile before the threads start, and say so, once, when it takes a while."""
    signature = (numba.int64, numba.int64, *map(numba.typeof, arguments))
    if signature not in function.signatures:
        timer = threading.Timer(1.0, _warn)
        timer.daemon = True
        timer.start()
        function.compile(signature)
        timer.cancel()


@functools.cache
def _warn() -> None:
    logging.getLogger("capspoe").warning("Compiling the kernels, once for this machine: about half a minute ...")
