"""The memory available to this process: that of the machine and the limits it runs under."""

import os
import sys
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import resource  # not where it is used: a process out of memory cannot load a module any more

CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory() -> int:
    """Bytes that this process may use at most."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    for path in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # not Linux, or "max": no limit
            limits.append(int(Path(path).read_text()))
    return min([*limits, *process_limits()], default=8 << 30)


def process_limits() -> list[int]:
    """The limits of `ulimit -v` and `ulimit -d`, in bytes."""
    if sys.platform == "win32":
        return []
    soft = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return [limit for limit in soft if limit != resource.RLIM_INFINITY]
