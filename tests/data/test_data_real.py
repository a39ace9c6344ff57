"""The real data sets. Tests are skipped where neither a site nor a package registry answers."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from capspoe.data import CATALOGUE, fetch, info, load, open_dataset, verify
from capspoe.data.catalogue import Package
from capspoe.errors import DataError

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
HISTOGRAMS = {
    "mnist": (MNIST_TRAIN, MNIST_TEST),
    "fashion-mnist": ([6000] * 10, [1000] * 10),
    "cifar10": ([5000] * 10, [1000] * 10),
}


def fetch_or_skip(name):
    """Wrong bytes are a failure, no network is not."""
    try:
        fetch(name)
    except DataError as error:
        if "damaged" in str(error) or "checksum" in str(error):
            raise
        pytest.skip(f"{name}: {str(error)[:120]}")


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_data_set_is_exact(name):
    """From the machine's cache, so that only the first run downloads."""
    fetch_or_skip(name)
    for split, histogram in zip(("train", "test"), HISTOGRAMS[name], strict=True):
        dataset = open_dataset(name, split, offline=True)
        assert dataset.shape == info(name).shape
        assert np.bincount(dataset.labels).tolist() == histogram
        assert len(dataset) == sum(histogram)
        assert dataset.batch([0, len(dataset) - 1]).any(axis=(1, 2, 3)).all()
    assert len(open_dataset(name, "all", offline=True)) == info(name).train + info(name).test


def test_mnist_from_an_empty_cache(cache):
    fetch_or_skip("mnist")
    assert set(verify("mnist").values()) == {"ok"}
    assert {path.name for path in (cache / "mnist").iterdir()} == {file.name for file in info("mnist").files}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [
        (entry.name, download)
        for entry in CATALOGUE.values()
        for download in entry.downloads
        if isinstance(download, Package)
    ],
)
def test_every_package_gives_the_same_bytes(cache, name, package, monkeypatch):
    monkeypatch.setitem(CATALOGUE, name, info(name)._replace(downloads=(package,)))
    fetch_or_skip(name)
    assert set(verify(name).values()) == {"ok"}


def test_mnist_looks_like_mnist():
    fetch_or_skip("mnist")
    pixels, labels = load("mnist", "test", offline=True)
    assert pixels.shape == (10_000, 28, 28, 1)
    assert (pixels.dtype, labels.dtype) == (np.uint8, np.int64)
    assert labels[:5].tolist() == [7, 2, 1, 0, 4]
    assert abs(pixels.mean() / 255 - 0.1325) < 0.0005


def test_cifar_has_its_colours_and_can_be_cropped():
    fetch_or_skip("cifar10")
    whole = open_dataset("cifar10", "test", offline=True)
    cropped = open_dataset("cifar10", "test", crop=28, offline=True)
    assert np.array_equal(cropped.batch([5]), whole.batch([5])[:, 2:30, 2:30])
    means = whole.images().pixels.mean((0, 1, 2)) / 255
    assert np.allclose(means, [0.4942, 0.4851, 0.4504], atol=5e-4)


def test_digits_need_no_network(cache):
    train, test, everything = (load("digits", split, offline=True) for split in ("train", "test", "all"))
    assert train.pixels.shape == (1500, 28, 28, 1)
    assert test.pixels.shape == (297, 28, 28, 1)
    assert train.pixels.max() == 255
    assert np.bincount(test.labels).min() > 15
    assert test.labels[:8].tolist() == [2, 4, 5, 5, 4, 1, 7, 0]  # the split is fixed
    assert np.array_equal(everything.labels, load_digits().target)
    assert verify("digits") == {}
    assert not cache.exists()


def test_digits_are_those_of_scikit_learn():
    """Resized back to 8x8 they are close to the originals."""
    pixels = load("digits", "all", size=8).pixels[..., 0]
    assert abs(pixels - load_digits().images * (255 / 16)).mean() < 20
