import os
import shutil

# Before anything loads a BLAS: its rounding depends on the threads, and tests compare bits with other processes.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytest
import torch
from hypothesis import settings

from capspoe import CapsulePoE, data, train
from runs import QUICK

settings.register_profile("capspoe", deadline=None, max_examples=60, print_blob=True, derandomize=True)
settings.load_profile("capspoe")
torch.set_num_threads(1)  # the tensors of tests are too small for more


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The folder of a finished run on `digits` with the gate, 4x6 capsules. Do not write to it: see `run_copy`."""
    folder = tmp_path_factory.mktemp("session") / "run"
    train("digits", folder, quiet=True, **QUICK | {"checkpoint_seconds": 1e9})
    return folder


@pytest.fixture
def run_copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


@pytest.fixture(scope="session")
def model(run) -> CapsulePoE:
    return CapsulePoE.load(run)


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """Twenty test images, uint8 (20, 28, 28, 1)."""
    return data.load("digits", "test").pixels[:20]
