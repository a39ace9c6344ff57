"""Training on arrays in memory gives the network of a run folder."""

import torch

from capspoe import data
from capspoe.model.network import Network
from capspoe.train import fit as in_memory


def test_the_network_of_a_run_folder(model):
    network = Network(model.config, model.image)
    seen = []
    pixels = data.load("digits").pixels[:256]
    in_memory.fit(network, pixels, lambda stage, step, steps: seen.append((stage, step.number, steps)))
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())
    assert seen == [("autoencoder", k, 32) for k in range(1, 33)] + [("capsules-0", k, 48) for k in range(1, 49)]
