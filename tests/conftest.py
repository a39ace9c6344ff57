import os

import pytest
import torch
from hypothesis import settings

settings.register_profile("capspoe", deadline=None, max_examples=60, print_blob=True, derandomize=True)
settings.load_profile("capspoe")
torch.set_num_threads(min(2, os.cpu_count() or 1))


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)
