"""Two hundred clients at once, in small: the whole of it is benchmarks/soak.py."""

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import soak


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process from /proc")
def test_two_hundred_clients_get_no_error(address):
    seconds, statuses, _ = asyncio.run(soak.soak(urlsplit(address).port, os.getpid(), 200, 1000))
    assert statuses == {200: 1000}
    assert {"paint", "recognise", "gallery", "images", "routing"} <= set(seconds)
