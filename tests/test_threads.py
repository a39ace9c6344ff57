"""How threads wait is decided before PyTorch loads, and the user's own choice counts."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from capspoe import CapsulePoE, Config, fit
from capspoe.threads import BRIEFLY, DECIDED
from capspoe.training.fit import Callback

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


class Threads(Callback):
    """The number of threads in each step."""

    def __init__(self):
        self.seen = set()

    def step(self, stage, step):
        self.seen.add(torch.get_num_threads())


@pytest.mark.parametrize(
    ("channels", "threads", "expected"),
    [(8, None, 1), (8, 2, 2), (64, None, 2)],
    ids=["small", "the user decides", "large"],
)
def test_a_small_network_trains_with_one_thread(channels, threads, expected):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 12, 12, 1), np.uint8)
    settings = {"layers": "2x3", "min_steps": 2, "prior_components": 1, "recognition_steps": 0}
    network = CapsulePoE.build(Config(channels=channels, threads=threads, **settings), (12, 12, 1))
    recorder = Threads()
    torch.set_num_threads(2)
    try:
        fit(network, pixels, callbacks=[recorder], epochs=1, autoencoder_epochs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert recorder.seen == {expected}
