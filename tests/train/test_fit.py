"""Training on arrays in memory gives the network of a run folder."""

import torch

from capspoe import data
from capspoe.model.build import build_network
from capspoe.train.build import build_stages
from capspoe.train.fit import Callback, fit


def test_the_network_of_a_run_folder(model):
    network = build_network(model.config, model.image)
    seen = []

    class Recorder(Callback):
        def step(self, stage, step):
            seen.append((stage.name, step.number, stage.steps(256)))

    pixels = data.load("digits").pixels[:256]
    fit(network, pixels, build_stages(model.config, network), [Recorder()])
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())
    assert seen == [("autoencoder", k, 32) for k in range(1, 33)] + [("capsules-0", k, 48) for k in range(1, 49)]
