"""The recipes of docs/howto/loggers.md, offline, where their packages are installed."""

import re
from pathlib import Path

import pytest

import capspoe
from capspoe import kernels
from runs import QUICK

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "loggers.md").read_text()
RECIPES = {re.search(r"import (wandb|mlflow)", code)[1]: code for code in re.findall(r"```py\n(.*?)```", PAGE, re.S)}


def run_recipe(name, tmp_path, monkeypatch):
    train = capspoe.train

    def small_train(images, out, callback, epochs, seed):
        return train("digits", out, callback=callback, quiet=True, **QUICK)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(capspoe, "train", small_train)
    with kernels.use("reference"):  # nothing to compile
        exec(RECIPES[name], {})


def test_weights_and_biases(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    run_recipe("wandb", tmp_path, monkeypatch)
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert b"autoencoder/loss" in log.read_bytes()


def test_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database would need more packages
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    run_recipe("mlflow", tmp_path, monkeypatch)
    (run,) = mlflow.search_runs(output_format="list")
    assert run.data.params == {"epochs": "20", "seed": "0"}
    assert {"autoencoder/loss", "capsules-0/reconstruction"} <= set(run.data.metrics)
    assert [file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)] == ["samples.png"]
