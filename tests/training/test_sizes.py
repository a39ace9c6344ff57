"""Images of any size, shape and colour: train, sample, encode, reconstruct."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from capspoe import train
from capspoe.data import open_for
from capspoe.errors import CapspoeError
from runs import QUICK

FEW = QUICK | {"autoencoder_epochs": 1, "epochs": 1, "layers": "2x3", "prior_components": 1}
FEW |= {"checkpoint_seconds": 1e9}


def save(path, *shape):
    rng = np.random.default_rng(0)
    smooth = gaussian_filter(rng.standard_normal(shape), (0, 3, 3, 0)[: len(shape)])
    np.save(path, (255 * (smooth > 0)).astype(np.uint8))
    return np.load(path)


@pytest.mark.parametrize(
    ("shape", "options", "image"),
    [
        ((5, 5), {}, (5, 5, 1)),
        ((33, 9, 4), {}, (33, 9, 3)),  # alpha is composited over white
        ((9, 14, 7), {}, (9, 14, 7)),
        ((30, 20, 3), {"crop": 25}, (25, 20, 3)),
        ((20, 20), {"size": 16, "crop": 12}, (12, 12, 1)),
    ],
)
def test_the_whole_way(shape, options, image, tmp_path):
    pixels = save(tmp_path / "x.npy", 24, *shape)
    model = train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **FEW, **options)
    assert model.image == image
    assert model.sample(3).images.shape == (3, *image)
    shown = open_for(model.config, image, str(tmp_path / "x.npy"), "all").batch(np.arange(4))
    if "size" in options:  # other images are resized to the run's size before they are cropped
        np.save(tmp_path / "large.npy", pixels.repeat(2, 1).repeat(2, 2))
        large = open_for(model.config, image, str(tmp_path / "large.npy"), "all").batch(np.arange(4))
        assert np.abs(shown - large.astype(float)).mean() < 20
    on, hidden = model.encode(shown)
    assert (on.shape, hidden.shape) == ((4, 2), (4, 2, 3))
    assert model.decode(hidden, on).shape == model.reconstruct(shown).shape == (4, *image)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((9, 4, 30), {}, "images of 4x30 are too small: at least 5x5"),
        ((9, 30, 30, 40), {}, r"shape \(9, 30, 30, 40\) is not \(n, H, W\)"),
        ((9, 30, 30, 2), {"colour": "grey"}, "2 channels"),
        ((9, 30, 30), {"crop": 31}, "a crop of 31 is larger than the images"),
        ((9, 30, 30), {"channels": 12}, "channels must be a multiple of 8"),
    ],
)
def test_what_does_not_fit_is_refused(shape, options, message, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(shape, np.uint8))
    with pytest.raises(CapspoeError, match=message):
        train(tmp_path / "x.npy", tmp_path / "run", quiet=True, **{**FEW, **options})
    assert not (tmp_path / "run").exists()
