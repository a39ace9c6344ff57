"""Numba functions that are compiled once and kept on disk, and work split over threads."""

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

from capspoe.kernels import ahead
from capspoe.kernels.private import pause_openmp

PIECES = 4  # for each thread, so that one that is held up leaves its work to the others
NOTICE_SECONDS = 1.0  # of compiling before a message explains the delay


def _hash_of_all_files() -> str:
    """Numba checks the file of a cached function, but not those of the functions it calls: here all files count."""
    total = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        total.update(path.read_bytes())
    return total.hexdigest()[:8]


_VERSION = _hash_of_all_files()


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
    if threads == 1:
        function(0, count, *arguments)
        return
    pieces = min(count, PIECES * threads)
    turn = itertools.count()

    def work() -> None:
        while (piece := next(turn)) < pieces:
            function(count * piece // pieces, count * (piece + 1) // pieces, *arguments)

    pause_openmp()
    pool = _thread_pool(threads - 1, os.getpid())
    helpers = [pool.submit(work) for _ in range(threads - 1)]
    work()
    for helper in helpers:
        # On a busy machine everything may be done before a thread has started.
        if not helper.cancel():
            helper.result()


@functools.cache
def _thread_pool(count: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process: those of its parent do not survive a fork."""
    return ThreadPoolExecutor(count, "capspoe-kernel")


def _compile_first(function: Any, arguments: tuple[Any, ...]) -> None:
    """Compile before the threads start, and say so, once, when it takes a while."""
    signature = (numba.int64, numba.int64, *map(numba.typeof, arguments))
    if signature in function.signatures:
        return
    notice = threading.Timer(NOTICE_SECONDS, _explain_delay)
    notice.daemon = True
    notice.start()
    ahead.take_over()
    function.compile(signature)
    notice.cancel()


@functools.cache
def _explain_delay() -> None:
    logging.getLogger("capspoe").warning("Compiling the kernels, once for this machine: about half a minute ...")
