"""`capspoe encode`."""

import numpy as np

from capspoe import data
from capspoe.cli import main


def encoded(run, out, *options):
    main(["encode", str(run), *options, "--out", str(out)])
    with np.load(out) as stored:
        return dict(stored)


def test_the_runs_own_test_images(run, model, tmp_path, monkeypatch):
    monkeypatch.setattr("capspoe.commands.encode.BLOCK", 100)
    stored = encoded(run, tmp_path / "x.npz")
    pixels, labels = data.load("digits", "test")
    assert np.array_equal(stored["labels"], labels)
    np.testing.assert_allclose(stored["hidden"], model.encode(pixels).hidden, atol=1e-4)
    np.testing.assert_allclose(stored["on"], model.encode(pixels).on, atol=1e-4)


def test_other_images(run, model, images, tmp_path):
    np.save(tmp_path / "own.npy", images)
    stored = encoded(run, tmp_path / "x.npz", str(tmp_path / "own.npy"), "--split", "all")
    assert set(stored) == {"on", "hidden"}
    np.testing.assert_allclose(stored["hidden"], model.encode(images).hidden, atol=1e-4)
