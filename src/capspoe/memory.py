"""The memory available to this process: that of the machine and the limits it runs under."""

import os
from contextlib import suppress
from pathlib import Path

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
    try:
        import resource
    except ImportError:  # Windows has none
        return []
    soft = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return [limit for limit in soft if limit != resource.RLIM_INFINITY]
