"""Compile the routing kernel while something else runs, so that nobody waits for it.

Another process does it, with the lowest priority, and leaves each function that is ready in numba's cache on disk.
A thread of this process would hold the GIL for much of that time.
"""

import atexit
import functools
import os
import subprocess
import sys
from pathlib import Path

from capspoe.kernels.dispatch import current


def compile_ahead() -> None:
    """Start to compile the forward routing kernel in the background, unless this machine has it already.

    Returns at once, prints nothing, and changes no result. The first call that needs the kernel takes over: it
    compiles what is not ready yet. It does the same if the other process fails.
    """
    first_on_machine = os.environ.get("LOCAL_RANK", "0") == "0"  # torchrun numbers the processes of a machine
    if first_on_machine and current() != "reference" and not _in_cache():
        _start()


def take_over() -> None:
    """Stop compiling in the background, if something is. What is ready stays in the cache."""
    if _start.cache_info().currsize > 0:
        _stop(_start())


def _in_cache() -> bool:
    """Whether the kernel is on disk, or there is no folder for it."""
    from capspoe.kernels.routing import route

    folder = route.stats.cache_path
    if folder is None:
        return True
    index = f"routing.{route.py_func.__qualname__}-*.nbi"  # written when the kernel has been compiled
    return any(Path(folder).glob(index))


@functools.cache
def _start() -> "subprocess.Popen[bytes] | None":
    """The process that compiles, `kernels/__main__.py`: one for all calls. It ends with this one."""
    command = [sys.executable, "-m", "capspoe.kernels"]
    # It must import the same packages, even if this process has changed its own path.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    silent = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": path}, stdin=silent, stdout=silent, stderr=silent
        )
    except OSError:  # there is no interpreter to start, or no memory for a process
        return None
    atexit.register(_stop, process)
    return process


def _stop(process: "subprocess.Popen[bytes] | None") -> None:
    if process is not None:
        process.terminate()
        process.wait()
