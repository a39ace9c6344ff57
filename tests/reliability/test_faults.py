"""The short form of faults.py: a few faults of each kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reliability.faults import can_mount

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX")
SCRIPT = Path(__file__).parent / "faults.py"


def faults(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("nothing lost") == sum(word in ("kill", "stop", "damage", "disk") for word in arguments)
    return done.stdout


def test_nothing_is_lost():
    disk = ["disk"] if can_mount() else []  # needs root
    said = faults("kill", "stop", "damage", *disk, "--times", 3, "--seed", 7)
    assert "ended with -9" in said
    assert "ended with 130" in said
    assert not disk or "full, reported, resumed" in said


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "stop", "damage", "disk"])
def test_nothing_is_lost_a_hundred_times(fault):
    if fault != "disk" or can_mount():
        faults(fault, "--times", 100)
