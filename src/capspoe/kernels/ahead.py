"""Compile the routing kernel while something else runs, so that nobody waits for it.

Another process does it, with a low priority, and leaves the result in numba's cache on disk.
"""

import atexit
import functools
import os
import subprocess
import sys
from pathlib import Path

from capspoe.kernels.dispatch import current

NICENESS = 10
PATIENCE_SECONDS = 60.0  # then whoever waits compiles by itself


def compile_ahead() -> None:
    """Start to compile the forward routing kernel in the background, unless this machine has it already.

    Returns at once. The first call that needs the kernel waits for what is left to compile. If the other process
    fails or is interrupted, that call compiles as if this function had not been called.
    """
    one_per_machine = os.environ.get("LOCAL_RANK", "0") == "0"  # set by torchrun
    if current() != "reference" and one_per_machine and not _in_cache():
        _start()


def wait() -> None:
    """Wait until nothing is being compiled in the background."""
    if _start.cache_info().currsize == 0:
        return
    process = _start()
    if process is None:
        return
    try:
        process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.terminate()


def _in_cache() -> bool:
    """Whether numba has the kernel on disk already, or cannot keep it there."""
    from capspoe.kernels.routing import route

    folder = route.stats.cache_path
    if folder is None:
        return True
    name = f"routing.{route.py_func.__qualname__}-*.nbi"
    return any(Path(folder).glob(name))


@functools.cache
def _start() -> "subprocess.Popen[bytes] | None":
    """The process that compiles: one for all calls, ended with this process."""
    command = [sys.executable, "-m", "capspoe.kernels"]
    # The child shall find the same packages, also where this process has changed its path.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    quiet = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
    except OSError:  # no more processes, or no interpreter to start
        return None
    atexit.register(process.terminate)
    return process
