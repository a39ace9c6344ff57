"""Map a function over inputs in worker processes: results in order, a bounded number ahead."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from typing import Any, TypeVar

from capspoe.errors import DataError, InputError

Input = TypeVar("Input")
Output = TypeVar("Output")
AHEAD = 2  # results computed ahead per worker

_task: Callable[[Any], Any]


def map_in_order(task: Callable[[Input], Output], inputs: Iterable[Input], workers: int) -> Iterator[Output]:
    """`map(task, inputs)` in `workers` processes, or in this one if 0. Each worker gets the task once, pickled."""
    if workers < 0:
        raise InputError(f"workers is {workers}; it must be 0 or more")
    if workers == 0:
        yield from map(task, inputs)
        return
    # No fork: forking a process that runs PyTorch's threads can hang.
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(task,))
    remaining = iter(inputs)
    try:
        pending: deque[Future[Output]] = deque()
        pending.extend(pool.submit(_run, item) for item in islice(remaining, AHEAD * workers))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(_run, item) for item in islice(remaining, 1))
            yield result
    except BrokenProcessPool as error:
        reason = "out of memory, or a script without `if __name__ == '__main__':`"
        raise DataError(f"a worker process died ({reason}); use fewer workers, or workers=0") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _start(task: Callable[[Any], Any]) -> None:
    global _task
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent also gets them, and stops the workers
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    _task = task


def _exit_with_parent() -> None:
    """Exit when the parent does: a killed parent cannot stop its workers."""
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _run(item: Any) -> Any:
    return _task(item)
