"""`capspoe encode`."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from capspoe import data
from capspoe.cli import main
from capspoe.commands import arguments
from capspoe.errors import InputError


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


def test_a_file_that_is_named_is_encoded_whole(run, images, tmp_path):
    np.savez(tmp_path / "own.npz", images=images)
    assert len(encoded(run, tmp_path / "x.npz", str(tmp_path / "own.npz"))["on"]) == len(images)


def test_images_of_another_kind_are_announced(run, tmp_path, capsys):
    np.save(tmp_path / "colour.npy", np.zeros((3, 40, 40, 3), np.uint8))
    encoded(run, tmp_path / "x.npz", str(tmp_path / "colour.npy"))
    assert "images of 40x40 colour are converted to 28x28 grey" in capsys.readouterr().err


@pytest.fixture
def folder(images, tmp_path):
    """Twenty images as files with labels."""
    for k, pixels in enumerate(images):
        path = tmp_path / "own" / ("odd" if k % 2 else "even") / f"{k:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[..., 0]).save(path)
    return tmp_path / "own"


def test_file_names(run, folder, tmp_path):
    stored = encoded(run, tmp_path / "x.npz", str(folder))
    assert stored["file"].tolist() == sorted(str(p.relative_to(folder)) for p in folder.rglob("*.png"))
    assert stored["labels"].tolist() == [0] * 10 + [1] * 10


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table(run, model, folder, suffix, tmp_path):
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"x.{suffix}"
    main(["encode", str(run), str(folder), "--out", str(path)])
    table = pd.read_csv(path) if suffix == "csv" else pd.read_parquet(path)
    names = [
        "file",
        "label",
        "capsule",
        "probability",
        "typicality",
        "error",
        *(f"pose_{k}" for k in range(6)),
    ]
    assert list(table) == names
    pixels = np.stack([np.asarray(Image.open(folder / name)) for name in table["file"]])
    on, hidden = model.encode(pixels)
    assert table["label"].tolist() == ["even"] * 10 + ["odd"] * 10
    assert table["capsule"].tolist() == on.argmax(-1).tolist()
    poses = hidden[np.arange(20), on.argmax(-1)]
    np.testing.assert_allclose(table[names[6:]], poses, atol=1e-3)
    error = np.square(model.reconstruct(pixels) - pixels[..., None] / 255).mean((1, 2, 3))
    np.testing.assert_allclose(table["error"], error, atol=1e-5)
    np.testing.assert_allclose(table["typicality"], [(error > e).mean() for e in error], atol=1e-3)


def test_parquet_without_its_package(monkeypatch):
    monkeypatch.setattr(arguments, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'capspoe\[parquet\]', or write x.csv"):
        arguments.check_suffix(Path("x.parquet"), ".csv", ".parquet")
