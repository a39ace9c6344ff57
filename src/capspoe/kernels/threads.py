"""Work split over threads, and numba functions that are compiled once and kept on disk."""

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

log = logging.getLogger("capspoe")
_pool: ThreadPoolExecutor | None = None
_pool_size = 0
_lock = threading.Lock()


@functools.cache
def made_of() -> str:
    """A hash of all kernels. Numba looks only at the file of a kept function, not at those whose functions it calls,
    so that after an update new code would run together with old."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def compiled(function: Callable[..., Any]) -> Any:
    """A numba function that releases the GIL, kept on disk where some folder can be written.

    LLVM may fuse a product and a sum, and nothing else: reordered sums would break the rounding tricks of
    `vector`, and NaN and infinity keep their meaning, so that a product out of range is still noticed.
    """
    options: dict[str, Any] = {
        "nogil": True,
        "fastmath": {"contract"},
        "error_model": "numpy",
    }
    function.__qualname__ += f"_{made_of()}"  # part of the name of the file in which it is kept
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written
        return numba.njit(**options)(function)


ALONE = 1 << 20  # numbers that one thread has moved before another has woken up


def in_parallel(function: Any, count: int, *arguments: Any, pieces: int = 0, moves: int = ALONE) -> None:
    """Call function(lo, hi, *arguments) on pieces of the range of `count`, several for each thread.

    `moves` says how many numbers are moved in all, where little is done with each; a few need one thread only.

    A piece writes only its own results, and no sum crosses a border, so that neither the number of threads
    nor who takes which piece changes anything in the result. Threads of our own instead of numba's: several
    callers may run at once, a fork does no harm, and torch.set_num_threads counts.
    """
    _compile_first(function, arguments)
    threads = 1 if moves < ALONE else max(1, min(torch.get_num_threads(), count))
    if threads == 1:
        function(0, count, *arguments)
        return
    pieces = min(count, pieces or 4 * threads)
    borders = [count * p // pieces for p in range(pieces + 1)]
    turn = itertools.count()

    def work() -> None:
        while (piece := next(turn)) < pieces:
            function(borders[piece], borders[piece + 1], *arguments)

    _send_openmp_to_sleep()
    pool = _threads(threads - 1)
    helpers = [pool.submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        helper.result()


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """The GNU OpenMP library that comes with PyTorch on Linux."""
    found = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*"))
    try:
        library = ctypes.CDLL(str(found[0]))
    except (IndexError, OSError):
        return None
    return library if hasattr(library, "omp_pause_resource_all") else None


def _send_openmp_to_sleep() -> None:
    """End the threads that PyTorch's last operation left spinning, 8 ms long, on the cores we want.

    They come back with its next operation, which costs it 0.1 ms. Without this a training step takes half as
    long again (docs/performance.md).
    """
    library = _openmp()
    if library is not None:
        library.omp_pause_resource_all(1)  # omp_pause_soft


def _threads(count: int) -> ThreadPoolExecutor:
    global _pool, _pool_size
    with _lock:
        if _pool is None or _pool_size < count:
            _pool, _pool_size = ThreadPoolExecutor(count, "capspoe-kernel"), count
        return _pool


def _forget_threads() -> None:
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def _compile_first(function: Any, arguments: tuple[Any, ...]) -> None:
    """Compile before the threads start, and say so, once, when it takes a while."""
    if function.signatures:
        return
    timer = threading.Timer(1.0, _say_it_takes_a_while)
    timer.daemon = True
    timer.start()
    function.compile((numba.int64, numba.int64, *map(numba.typeof, arguments)))
    timer.cancel()


@functools.cache
def _say_it_takes_a_while() -> None:
    log.warning("Compiling the kernels, once for this machine: about half a minute ...")
