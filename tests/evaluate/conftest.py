"""One tiny run on 12x12 digits, evaluated once in full, for all tests of this folder."""

import numpy as np
import pytest
import torch
from short import SETTINGS, short

import capspoe
from capspoe.config import preset
from capspoe.evaluate import run
from capspoe.evaluate.data import EvaluationData


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _short(cache):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with short(cache):
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def trained(tmp_path_factory, cache):
    folder = tmp_path_factory.mktemp("run") / "digits"
    with short(cache):
        capspoe.train("digits", folder, quiet=True, **SETTINGS)
    return folder


@pytest.fixture(scope="session")
def result(trained, cache):
    with short(cache):
        return run.evaluate(trained, samples=60, quiet=True)


@pytest.fixture(scope="session")
def data(trained, cache):
    with short(cache):
        found = EvaluationData(capspoe.CapsulePoE.load(trained), samples=10)
        assert len(found.train.pixels) == 256
        assert len(found.test.pixels) == len(capspoe.data.load("digits", "test").pixels)
        return found


@pytest.fixture
def labelled(tmp_path):
    """Makes the evaluation data of an untrained network on digits with other labels."""

    def make(labels, **changes):
        pixels, _ = capspoe.data.load("digits", "train")
        np.savez(tmp_path / "mine.npz", images=pixels[: len(labels)], labels=labels)
        config = preset("small", str(tmp_path / "mine.npz")).replace(size=12, channels=8, layers="4x6", **changes)
        return EvaluationData(capspoe.CapsulePoE.build(config, (12, 12, 1)), samples=10)

    return make
