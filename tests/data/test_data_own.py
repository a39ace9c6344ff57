"""A run's own folder: stored from the root, compared by a sample, found again with --data."""

import shutil

import numpy as np
import pytest
from PIL import Image

from capspoe import data, train
from capspoe.cli import main
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
    main(["reconstruct", str(run), "--data", str(tmp_path / "moved")])
    assert (run / "figures" / "reconstructions.png").exists()
