"""Degenerate images and sizes: finite results, or a clear error."""

import numpy as np
import pytest
import torch

import capspoe
from capspoe import kernels, train
from capspoe.errors import DivergedError
from runs import QUICK

RNG = np.random.default_rng(0)
PICTURE = RNG.integers(0, 255, (16, 16), np.uint8)
ODD = {
    "all black": np.zeros((20, 16, 16), np.uint8),
    "all white": np.full((20, 16, 16), 255, np.uint8),
    "constant": np.full((20, 16, 16), 77, np.uint8),
    "one image": PICTURE[None],
    "two images": np.stack([PICTURE, 255 - PICTURE]),
    "duplicates": np.repeat(PICTURE[None], 40, 0),
    "one bright pixel": np.pad(np.full((20, 1, 1), 255, np.uint8), ((0, 0), (8, 7), (3, 12))),
    "denormal floats": np.full((20, 16, 16), 1e-42, np.float32),
}
SETTINGS = {**QUICK, "autoencoder_epochs": 1, "epochs": 2, "batch_size": 16, "checkpoint_seconds": 60.0}


@pytest.fixture(autouse=True)
def _reference():
    with kernels.use("reference"):  # nothing to compile for runs of some steps
        yield


def all_finite(model, images):
    images = images if images.dtype == np.uint8 else images.astype(np.float32)
    on, hidden = model.encode(images)
    for found in (on, hidden, model.reconstruct(images), model.sample(6).images):
        assert np.isfinite(found).all()
    if model.top.gate.one_on:
        np.testing.assert_allclose(on.sum(-1), 1, atol=1e-4)
    assert all(bool(torch.isfinite(v).all()) for v in model.state_dict().values())


@pytest.mark.parametrize("name", ODD)
def test_odd_images_train_or_say_why_not(tmp_path, name):
    np.save(tmp_path / "x.npy", ODD[name])
    try:
        model = train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **SETTINGS)
    except DivergedError as error:  # images that are all the same switch on the same capsule
        if "takes all images" not in str(error):
            raise
        return
    all_finite(model, ODD[name])
    all_finite(capspoe.CapsulePoE.load(tmp_path / "run"), ODD[name])


def test_capsules_that_are_never_on_are_sampled_alike(tmp_path):
    """Every code is the mean code: z is 0 everywhere, and |squash(0)| is 0."""
    np.save(tmp_path / "x.npy", ODD["constant"])
    train(tmp_path / "x.npy", tmp_path / "run", quiet=True, gate="none", bias=False, **SETTINGS)
    model = capspoe.CapsulePoE.load(tmp_path / "run")
    assert model.prior.use.tolist() == [0.25] * 4
    all_finite(model, ODD["constant"])


@pytest.mark.parametrize("layers", ["1x1", "4x1", "3x1,1x1"])
@pytest.mark.parametrize("literal", [False, True])
def test_one_capsule_and_one_neuron(tmp_path, layers, literal):
    images = RNG.integers(0, 255, (40, 16, 16), np.uint8)
    np.save(tmp_path / "x.npy", images)
    settings = {k: v for k, v in SETTINGS.items() if k != "prior_components" or not literal}
    model = train(tmp_path / "x.npy", tmp_path / "run", quiet=True, literal=literal, **{**settings, "layers": layers})
    all_finite(model, images)
