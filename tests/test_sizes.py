"""Images of any size, shape and colour go the whole way: train, sample, encode, reconstruct, figures, report."""

import numpy as np
import pytest

from capspoe import CapsulePoE, train
from capspoe.encoding import open_for
from capspoe.errors import CapspoeError
from runs import QUICK, capspoe

FEW = {
    **QUICK,
    "autoencoder_epochs": 1,
    "epochs": 1,
    "layers": "2x3",
    "components": 1,
    "checkpoint_seconds": 1e9,
}


def images(count, *shape, seed=0):
    """Soft blobs, so that there is something to see."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[: shape[0], : shape[1]]
    centre = rng.uniform(0, 1, (count, 2)) * shape[:2]
    far = ((y - centre[:, :1, None]) / shape[0]) ** 2 + ((x - centre[:, 1:, None]) / shape[1]) ** 2
    blob = np.exp(-12 * far)
    channels = shape[2] if len(shape) == 3 else 1
    colour = rng.uniform(0.3, 1, (count, 1, 1, channels))
    pixels = (255 * blob[..., None] * colour).astype(np.uint8)
    return pixels if len(shape) == 3 else pixels[..., 0]


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((5, 5), (5, 5, 1)),
        ((8, 8), (8, 8, 1)),
        ((11, 23, 3), (11, 23, 3)),
        ((33, 9, 4), (33, 9, 3)),  # alpha is laid over white
        ((12, 10, 2), (12, 10, 2)),
        ((9, 14, 7), (9, 14, 7)),
        ((128, 128, 3), (128, 128, 3)),
    ],
)
def test_the_whole_way(shape, image, tmp_path):
    pixels = images(24, *shape)
    np.save(tmp_path / "x.npy", pixels)
    model = train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **FEW)
    assert model.image == image
    assert model.sample(3).images.shape == (3, *image)
    own = CapsulePoE.load(tmp_path / "run")
    shown = pixels[:4, ..., : image[2]] if len(shape) == 3 else pixels[:4]
    on, hidden = own.encode(shown)
    assert (on.shape, hidden.shape) == ((4, 2), (4, 2, 3))
    assert own.decode(hidden, on).shape == own.reconstruct(shown).shape == (4, *image)


def test_other_images_are_resized_before_they_are_cut_as_the_run_s_own_were(tmp_path):
    pixels = images(30, 20, 20)
    large = pixels.repeat(2, 1).repeat(2, 2)
    np.save(tmp_path / "x.npy", pixels)
    np.save(tmp_path / "large.npy", large)
    model = train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **FEW, size=16, crop=12)
    own, other = (open_for(model, str(tmp_path / f"{name}.npy"), "all") for name in ("x", "large"))
    assert own.shape == other.shape == (12, 12, 1)
    assert np.abs(own.batch([3]).astype(int) - other.batch([3])).mean() < 4


def test_a_crop_that_only_one_side_is_long_enough_for(tmp_path):
    pixels = images(24, 30, 20, 3)
    np.save(tmp_path / "x.npy", pixels)
    model = train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **FEW, crop=25)
    assert model.image == (25, 20, 3)
    whole, cut = model.encode(pixels[:4]).hidden, model.encode(pixels[:4, 2:27]).hidden
    np.testing.assert_array_equal(whole, cut)
    np.testing.assert_allclose(model.encode(pixels[0]).hidden[0], whole[0], atol=1e-5)


LONGER = [pytest.param(shape, marks=pytest.mark.slow) for shape in ((8, 8), (19, 40, 3))]


@pytest.mark.parametrize("shape", [*LONGER, (19, 40, 5)])
def test_every_command_draws_it(shape, tmp_path):
    np.save(tmp_path / "x.npy", images(60, *shape))
    run = tmp_path / "run"
    train(tmp_path / "x.npy", run, quiet=True, **FEW)
    for command in (
        ("sample", run, "--out", tmp_path / "s.png"),
        ("encode", run, "--out", tmp_path / "e.npz"),
        ("reconstruct", run, "--count", 2),
        ("report", run),
        ("export", run, "--out", tmp_path / "exported"),
    ):
        done = capspoe(*command)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((9, 4, 30), np.uint8), {}, r"images of 4x30 are too small: at least 5x5"),
        (np.zeros((9, 30, 30, 40), np.uint8), {}, r"shape \(9, 30, 30, 40\) is not \(n, H, W\)"),
        (np.zeros((9, 30, 30, 2), np.uint8), {"colour": "grey"}, r"images of 2 channels have no colour"),
        (np.zeros((9, 30), np.uint8), {}, r"is not \(n, H, W\)"),
        (np.zeros((9, 30, 30), np.uint8), {"crop": 31}, r"crop"),
        (np.zeros((9, 30, 30), np.uint8), {"channels": 12}, r"channels must be a multiple of 8"),
    ],
)
def test_what_does_not_fit_is_said(array, options, message, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(CapspoeError, match=message):
        train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **{**FEW, **options})
    assert not (tmp_path / "run").exists()
