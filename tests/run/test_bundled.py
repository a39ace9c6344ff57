"""The network that ships with the package."""

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.pages.bundle import bundle

from capspoe import CapsulePoE
from capspoe.cli import main
from capspoe.run.bundled import bundled_folder, find_run
from capspoe.run.checkpoint import DONE


def test_it_loads_and_is_small():
    model = CapsulePoE.load("mnist-small")
    assert (model.stage, model.config.data, model.image) == (DONE, "mnist", (28, 28, 1))
    assert sum(path.stat().st_size for path in bundled_folder().iterdir()) < 2e6
    images = model.sample(20, seed=1).images
    assert 0.05 < images.mean() < 0.3
    on, _ = model.encode(images)
    assert (on.argmax(-1) == model.sample(20, seed=1).capsule).mean() > 0.8


def test_its_card_has_its_numbers():
    card = (bundled_folder() / "README.md").read_text()
    assert "Made by `capspoe train mnist" in card
    assert "| purity |" in card
    summary = json.loads((bundled_folder() / "summary.json").read_text())
    assert {label for label, share in summary["labels"] if share > 0.5} == set("0123456789")


def test_commands_without_a_run(tmp_path, monkeypatch, capsys):
    before = {path: path.read_bytes() for path in bundled_folder().iterdir()}
    monkeypatch.chdir(tmp_path)
    main(["sample", "--out", "x.npz", "--each", "1"])
    assert np.load("x.npz")["images"].shape == (20, 1, 28, 28, 1)
    main(["traverse", "mnist-small", "--capsule", "3"])
    assert Path("runs/mnist-small/figures/traverse-3.png").exists()
    assert before == {path: path.read_bytes() for path in bundled_folder().iterdir()}


def test_a_folder_of_that_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_run("mnist-small") == bundled_folder()
    Path("mnist-small").mkdir()
    assert find_run("mnist-small") == Path("mnist-small")


def test_the_script_that_makes_it(run_copy, model, tmp_path, images):
    with pytest.raises(SystemExit, match="capspoe evaluate"):
        bundle(run_copy, tmp_path / "bundle")
    (run_copy / "evaluation.json").write_text(json.dumps({"rows": [{"name": "capspoe", "purity": 0.5}]}))
    bundle(run_copy, tmp_path / "bundle")
    there = CapsulePoE.load(tmp_path / "bundle")
    np.testing.assert_allclose(there.encode(images).on, model.encode(images).on, atol=0.02)
    weights, full = (
        sum(p.stat().st_size for p in f.rglob("model.safetensors")) for f in (tmp_path / "bundle", run_copy)
    )
    assert weights < 0.75 * full
