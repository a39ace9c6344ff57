"""A run's own images: stored from the root, compared by a sample, found again when moved; several paths as one."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capspoe import data, train
from capspoe.cli import main
from capspoe.data import absolute, join_names, names_in, open_dataset
from capspoe.errors import DataError, InputError
from capspoe.run import checkpoint
from runs import QUICK


@pytest.fixture
def run_and_folder(images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    for k, pixels in enumerate(data.load("digits", "train").pixels[:80]):
        Image.fromarray(pixels[..., 0]).save(tmp_path / "own" / f"{k:02d}.png")
    train("own/", "run", quiet=True, **QUICK | {"autoencoder_epochs": 1, "epochs": 1})
    return tmp_path / "run", tmp_path / "own"


def test_paths_changes_and_moves(run_and_folder, tmp_path, monkeypatch, capsys):
    run, folder = run_and_folder
    assert checkpoint.open_run(run).config.data == str(folder)
    assert train("own", "run", quiet=True, **QUICK | {"autoencoder_epochs": 1, "epochs": 1}).stage == "done"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    encode = ["encode", str(run), "--split", "all", "--out", "x.npz"]
    main(encode)
    assert "other images" not in capsys.readouterr().err
    assert len(np.load("x.npz")["file"]) == 80
    for k in range(40, 46):
        (folder / f"{k}.png").unlink()
    main(encode)
    assert "holds other images than" in capsys.readouterr().err
    shutil.move(folder, tmp_path / "moved")
    with pytest.raises(SystemExit):
        main(encode)
    assert "which is not there; if they moved" in capsys.readouterr().err
    main(["reconstruct", str(run), str(tmp_path / "moved")])
    assert (run / "figures" / "reconstructions.png").exists()


def test_several_paths_are_one_data_set(tmp_path, monkeypatch):
    """Files of several sizes and a folder get one size and colour; a file keeps its split when others move."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more").mkdir()
    names = [f"{k}.png" for k in range(40)] + ["more/a.png", "more/b.png"]
    for k, name in enumerate(names):
        Image.new("L", (30 + k % 3, 40), k).save(name)
    several = join_names([*names[:40], "more"])
    everything = open_dataset(several, "all")
    assert everything.shape == (28, 28, 1)
    assert everything.file_names == names
    assert everything.batch([7, 41])[:, 0, 0, 0].tolist() == [7, 41]

    train = open_dataset(several, "train")
    test = open_dataset(several, "test")
    assert train.what == "training images"
    assert sorted(train.file_names + test.file_names) == sorted(names)
    moved = open_dataset(absolute(several), "test")
    assert [Path(name).name for name in moved.file_names] == [Path(name).name for name in test.file_names]


def test_a_path_with_a_colon_is_one_path(tmp_path):
    odd = tmp_path / f"a{os.pathsep}b"
    odd.mkdir()
    Image.new("L", (28, 28)).save(odd / "x.png")
    assert names_in(absolute(str(odd))) == [str(odd)]
    with pytest.raises(InputError, match="which separates several paths; rename it, or give a folder"):
        join_names([str(odd), "mnist"])


def test_different_shapes_are_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 20, 20), np.uint8))
    np.save(tmp_path / "y.npy", np.zeros((3, 20, 24), np.uint8))
    with pytest.raises(DataError, match=r"different shapes \(20x20x1 and 20x24x1\); --size and --colour make"):
        open_dataset(join_names([str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]))
