import numpy as np
import pytest
from serving import client_of, served, trained

from capspoe import data
from capspoe.config import Config
from capspoe.run.model import CapsulePoE


@pytest.fixture(scope="session")
def gated_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="session")
def ungated_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits-literal"
    return trained(folder, literal=True, autoencoder_epochs=1, epochs=1)


@pytest.fixture(scope="session")
def stacked_run(tmp_path_factory):
    """Two capsule layers, no gate, images in colour that are not square, and no labels; not trained."""
    folder = tmp_path_factory.mktemp("runs") / "colour"
    pixels = np.random.default_rng(0).integers(0, 256, (200, 20, 24, 3), np.uint8)
    np.savez(folder.with_suffix(".npz"), images=pixels)
    config = Config(data=f"{folder}.npz", channels=8, layers="9x3,4x6", gate="none", prior_components=1)
    CapsulePoE.build(config, (20, 24, 3)).save(folder)
    return folder


@pytest.fixture(scope="session")
def dark_run(tmp_path_factory):
    """Dark digits on a light background; not trained, but the decoder knows that the background is light."""
    folder = tmp_path_factory.mktemp("runs") / "dark"
    np.savez(folder.with_suffix(".npz"), images=255 - data.load("digits", "test").pixels)
    config = Config(data=f"{folder}.npz", channels=8, layers="4x6", prior_components=1)
    network = CapsulePoE.build(config, (28, 28, 1)).requires_grad_(False)
    network.codec.up_2.bias.fill_(3.0)
    network.save(folder)
    return folder


@pytest.fixture(scope="session")
def api(gated_run):
    with client_of(gated_run) as client:
        yield client


@pytest.fixture(scope="session")
def ungated_api(ungated_run):
    with client_of(ungated_run) as client:
        yield client


@pytest.fixture(scope="session")
def stacked_api(stacked_run):
    with client_of(stacked_run) as client:
        yield client


@pytest.fixture(scope="module")
def address(gated_run):
    with served(gated_run) as address:
        yield address
