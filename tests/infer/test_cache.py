"""What is computed once for a network: kept while its weights stay, gone with it."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from capspoe import kernels
from capspoe.config import Config
from capspoe.infer.cache import cached_on
from capspoe.run.model import CapsulePoE


@pytest.fixture
def network():
    return nn.Linear(2, 2)


def counted():
    """A function that says how often it was called."""
    calls = []

    def make():
        calls.append(None)
        return len(calls)

    return make


@torch.no_grad()
def test_a_value_is_made_once_for_each_key_until_a_weight_changes(network):
    make, other = counted(), counted()
    assert [cached_on(network, "sum", make), cached_on(network, "sum", make)] == [1, 1]
    assert cached_on(network, "product", other) == 1
    network.weight.add_(1)
    assert [cached_on(network, "sum", make), cached_on(network, "sum", make)] == [2, 2]
    network.bias = nn.Parameter(torch.ones(2))
    assert cached_on(network, "sum", make) == 3
    assert cached_on(network, "product", other) == 2


def test_networks_do_not_share(network):
    make = counted()
    assert cached_on(network, "sum", make) == 1
    assert cached_on(nn.Linear(2, 2), "sum", make) == 2


def test_copies_start_empty(network):
    cached_on(network, "decoder", lambda: lambda x: x)  # a function, which cannot be pickled
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert cached_on(twin, "decoder", lambda: None) is None


def test_a_network_that_was_used_is_freed():
    model = CapsulePoE.build(Config(channels=8, layers="3x2"), (12, 12, 1)).requires_grad_(False).eval()
    image = np.zeros((1, 12, 12, 1), np.float32)
    with kernels.use("reference"):
        model.explain(image, 1)
        model.complete(image, "left", 1)
        model.score(image)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
