"""Training on arrays in memory gives the network of a run folder; batch by batch it continues."""

import numpy as np
import pytest
import torch

from capspoe import data, kernels
from capspoe.config import Config
from capspoe.core.network import Network
from capspoe.errors import DivergedError
from capspoe.training import in_memory

PIXELS = np.random.default_rng(0).integers(0, 255, (70, 10, 10, 1), np.uint8)
CONFIG = Config(channels=8, layers="3x4", batch_size=32, min_steps=6, prior_components=1)


@pytest.fixture(autouse=True)
def _reference():
    with kernels.use("reference"):  # nothing to compile for a few steps
        yield


def test_the_network_of_a_run_folder(model):
    network = Network(model.config, model.image)
    seen = []
    with kernels.use("auto"):
        pixels = data.load("digits").pixels[:256]
        in_memory.fit(network, pixels, lambda stage, step, steps: seen.append((stage, step.number, steps)))
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())
    assert seen == [("autoencoder", k, 32) for k in range(1, 33)] + [("capsules-0", k, 48) for k in range(1, 49)]


def test_batch_by_batch():
    """Each call is one pass; the prior is that of the latest codes, and training continues where it was."""
    network = Network(CONFIG, (10, 10, 1))
    fresh = {name: value.clone() for name, value in network.state_dict().items()}
    training = in_memory.Incremental(network)
    training.fit(PIXELS)
    assert training.step == 3
    moved = [name for name, value in network.state_dict().items() if not torch.equal(value, fresh[name])]
    assert {name.split(".")[0] for name in moved} >= {"autoencoder", "layers", "prior"}
    mean = network.top.mu.clone()
    training.fit(PIXELS[:40])
    assert training.step == 5
    assert torch.equal(network.top.mu, mean)  # initialised once
    assert len(training.codes) == 110
    again = in_memory.Incremental(Network(CONFIG, (10, 10, 1)))
    again.fit(PIXELS)
    again.fit(PIXELS[:40])
    expected = network.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.network.state_dict().items())


def test_only_the_latest_codes_are_remembered(monkeypatch):
    monkeypatch.setattr(in_memory, "REMEMBERED", 50)
    training = in_memory.Incremental(Network(CONFIG, (10, 10, 1)))
    training.fit(PIXELS)
    training.fit(PIXELS[:20])
    latest = in_memory.codes_in_memory(training.network, PIXELS[:20])
    assert len(training.codes) == 50
    np.testing.assert_array_equal(training.codes[-20:], latest)


def test_a_trained_network_is_continued_with_its_own_shares():
    network = Network(CONFIG, (10, 10, 1))
    in_memory.fit(network, PIXELS)
    mean, use = network.top.mu.clone(), network.prior.use.clone()
    training = in_memory.Incremental(network, trained=True)
    assert torch.equal(training.share, use)
    assert training.step == CONFIG.min_steps  # the gate does not anneal again
    training.fit(PIXELS)
    assert torch.equal(network.top.mu, mean)


def test_a_diverging_batch_stops():
    network = Network(CONFIG.replace(learning_rate=100.0), (10, 10, 1))
    training = in_memory.Incremental(network)
    with pytest.raises(DivergedError, match="lower --learning-rate"):
        training.fit(np.tile(PIXELS, (5, 1, 1, 1)))
