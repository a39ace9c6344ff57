"""Training on arrays in memory gives the network of a run folder."""

import types

import numpy as np
import pytest
import torch

import capspoe
from capspoe import CapsuleLayer, CapsulePoE, Config, ConvAutoencoder, data
from capspoe.data.given import FROM_PYTHON
from capspoe.errors import InputError, RunError
from capspoe.model.build import build_network
from capspoe.training.build import build_stages
from capspoe.training.fit import Callback, fit


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
    expected_steps = []
    for name, count in (("autoencoder", 32), ("capsules-0", 48), ("recognition", 40)):
        expected_steps += [(name, k, count) for k in range(1, count + 1)]
    assert seen == expected_steps


PIXELS = np.random.default_rng(0).integers(0, 255, (40, 12, 12, 1), np.uint8)
SETTINGS = {"channels": 8, "layers": "2x3", "min_steps": 4, "batch_size": 20, "prior_components": 1}


@pytest.mark.parametrize(
    "images",
    [PIXELS, PIXELS[..., 0], torch.from_numpy(PIXELS).permute(0, 3, 1, 2), PIXELS.astype(np.float32) / 255],
    ids=["uint8", "grey", "channels first", "float"],
)
def test_training_on_a_tensor_takes_three_lines(images):
    network = CapsulePoE.build(Config(**SETTINGS), (12, 12, 1))
    fit(network, images, epochs=1, autoencoder_epochs=1)
    expected = CapsulePoE.build(Config(**SETTINGS), (12, 12, 1))
    fit(expected, PIXELS, epochs=1, autoencoder_epochs=1)
    weights = expected.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())
    assert network.config == Config(**SETTINGS, data=FROM_PYTHON, epochs=1, autoencoder_epochs=1)
    assert network.sample(3).images.shape == (3, 12, 12, 1)


def test_a_network_put_together_from_parts_learns():
    codec = ConvAutoencoder((12, 12, 1), 8)
    network = CapsulePoE(codec, [CapsuleLayer(codec.capsules, (2, 3))])
    before = network.top.w_JNMI.clone()
    fit(network, PIXELS, epochs=1, autoencoder_epochs=1, min_steps=2)
    assert not torch.equal(network.top.w_JNMI, before)
    with pytest.raises(RunError, match="put together from parts"):
        network.config  # noqa: B018


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (PIXELS[:, :5], {}, r"images must have shape \(n, 12, 12, 1\)"),
        (PIXELS.astype(int), {}, "images must be uint8 or float"),
        (PIXELS.astype(np.float32), {}, r"values in \[0, 1\]"),
        (PIXELS, {"layers": "9x9"}, "layers is a setting of the network"),
        (PIXELS, {"stages": [], "epochs": 2}, "give stages or settings, not both"),
        (PIXELS, {"epochs": 0}, "epochs must be between"),
    ],
)
def test_wrong_requests_are_named(images, options, message):
    with pytest.raises(InputError, match=message):
        fit(CapsulePoE.build(Config(**SETTINGS), (12, 12, 1)), images, **options)


def test_the_functions_of_the_package_are_not_hidden_by_its_modules():
    """`capspoe.train` was a package for whoever had imported one of its modules."""
    for name in capspoe.__all__:
        assert not isinstance(getattr(capspoe, name), types.ModuleType), name
