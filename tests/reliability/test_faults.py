"""The short form of faults.py: a few faults of each kind, in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX")
SCRIPT = Path(__file__).parent / "faults.py"


def faults(*arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost" in done.stdout
    return done.stdout


@pytest.mark.parametrize(("fault", "times"), [("kill", 8), ("stop", 5), ("damage", 10)])
def test_nothing_is_lost(fault, times):
    said = faults(fault, "--times", times, "--seed", 7)
    if fault != "damage":
        assert "ended with" in said


def test_a_full_and_a_closed_disk():
    sys.path.insert(0, str(SCRIPT.parent))
    from faults import can_mount

    if not can_mount():
        pytest.skip("needs root, to mount a small file system")
    assert "full, said so, carried on" in faults("disk", "--times", 4)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill", "stop", "damage", "disk"])
def test_nothing_is_lost_a_hundred_times(fault):
    faults(fault, "--times", 100)
