"""How much memory there is for this process, by the machine and by the limits it runs under."""

import os
from pathlib import Path


def memory() -> int:
    """Bytes that this process may use at most, others aside."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else []
    return min([*limits, *process_limits(), *_container_limits()], default=8 << 30)


def process_limits() -> list[int]:
    """The bytes that `ulimit -v` and `ulimit -d` say, where they are limits."""
    try:
        import resource
    except ImportError:  # Windows has none
        return []
    soft = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return [limit for limit in soft if limit != resource.RLIM_INFINITY]


def _container_limits() -> list[int]:
    """What a container is given (control groups, version 2 and 1)."""
    found = []
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            found.append(int((Path("/sys/fs/cgroup") / name).read_text()))
        except (OSError, ValueError):  # not Linux, or "max": no limit
            continue
    return found
