"""How threads wait is decided before PyTorch loads, and the user's own choice counts."""

import os
import subprocess
import sys

import pytest

from capspoe.threads import BRIEFLY, DECIDED

SHOW = "print(*(os.environ.get(name, '-') for name in ('GOMP_SPINCOUNT', 'KMP_BLOCKTIME', 'OMP_WAIT_POLICY')))"


def waiting(program, **variables):
    """What the environment says after a program has run with these variables."""
    environment = {name: value for name, value in os.environ.items() if name not in DECIDED}
    command = [sys.executable, "-c", f"import os; {program}; {SHOW}"]
    done = subprocess.run(command, env=environment | variables, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("program", ["import capspoe", "import capspoe.sklearn", "import capspoe.cli"])
def test_threads_spin_briefly(program):
    assert waiting(program) == [*BRIEFLY.values(), "-"]


def test_the_users_choice_counts():
    assert waiting("import capspoe", OMP_WAIT_POLICY="ACTIVE") == ["-", "-", "ACTIVE"]
    assert waiting("import capspoe", GOMP_SPINCOUNT="7") == ["7", "-", "-"]


def test_nothing_changes_once_torch_is_loaded():
    assert waiting("import torch, capspoe") == ["-", "-", "-"]
