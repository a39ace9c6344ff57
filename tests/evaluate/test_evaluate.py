"""The whole evaluation of the tiny run."""

import json
import shutil

import numpy as np
import pytest
import torch

import capspoe
from capspoe.cli import main
from capspoe.errors import DivergedError, InputError, RunError
from capspoe.evaluate import baselines, quick_scores
from capspoe.evaluate import run as module
from capspoe.evaluate.run import Evaluation, evaluate
from capspoe.run import checkpoint

ROWS = [
    "floor: training images", "floor: autoencoder reconstructions", "floor: capsule reconstructions", "capspoe",
    "capspoe, both scales 1", "capspoe, plain", "capspoe, the paper's sampling", "capspoe, the energy's own samples",
    "spectral groups + PCA",
    "spectral groups + PCA, plain", "spectral groups + factor analysis", "spectral groups + factor analysis, plain",
    "k-means + PCA", "k-means + PCA, plain", "mixture of Gaussians", "mixture of Gaussians, plain",
    "binary neurons with the gate",
    "binary neurons with the gate, the paper's sampling", "one routing iteration",
    "one routing iteration, the paper's sampling", "RBM on the codes", "convolutional VAE",
    "convolutional VAE + mixture of its latents", "the paper to the letter",
]  # fmt: skip


def test_every_row_is_there_and_sensible(result):
    assert [row["name"] for row in result["rows"]] == ROWS
    for row in result["rows"]:
        assert "failed" not in row
        assert all(0 <= row[name] <= 1 for name in ("precision", "recall", "coverage"))
        assert all(0 < row[name] <= 1 for name in ("purity", "probe") if name in row)
    fids = {row["name"]: row["fid"] for row in result["rows"]}
    assert fids["floor: training images"] == min(fids.values())


def test_the_scores_that_are_not_in_the_table(result, data):
    assert result["data"] == {"name": "digits", "image": [12, 12, 1], "labels": True}
    assert result["settings"]["samples"] == 60
    found = result["clustering"]
    assert np.sum(found["table"]) == len(data.test.pixels)
    assert found["purity"] == result["rows"][3]["purity"] == np.max(found["table"], 1).sum() / np.sum(found["table"])
    assert found["mean_sample_class_entropy"] == pytest.approx(np.mean(found["sample_class_entropy"]))
    assert set(result["instantiation"]) == {"principal", "neurons"}
    assert result["probe"]["poses"] == result["rows"][3]["probe"]
    assert result["probe"]["raw pixels"] > 0.85
    p = result["likelihood"]
    assert p["log_p_lower"] <= p["log_p_upper"] + 1
    assert p["units"] == data.test.codes[0].size


def test_quick_scores_are_those_of_the_table(trained, result):
    scores, row = quick_scores(capspoe.CapsulePoE.load(trained), samples=60), result["rows"][3]
    assert scores == {name: row[name] for name in scores}


def copied(trained, folder, *unfinished):
    """A copy of the evaluated run without some parts."""
    ignored = shutil.ignore_patterns("evaluation.json", *(f"{name}-*" for name in unfinished))
    return shutil.copytree(trained, folder, ignore=ignored)


def without_seconds(value):
    if isinstance(value, dict):
        return {name: without_seconds(v) for name, v in value.items() if name != "seconds"}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def test_only_what_is_missing_is_computed(trained, result, tmp_path, monkeypatch):
    assert json.loads((trained / "evaluation.json").read_text()) == result
    folder = copied(trained, tmp_path / "run", "likelihood")
    (damaged,) = folder.glob("evaluation-cache/probe-*")
    damaged.write_text(damaged.read_text()[:-9])
    monkeypatch.setattr(baselines, "output", lambda *_: pytest.fail("computed again"))
    assert without_seconds(evaluate(folder, samples=60, quiet=True)) == without_seconds(result)


def test_other_weights_are_computed_again(trained, result, tmp_path):
    folder, network = copied(trained, tmp_path / "run"), capspoe.CapsulePoE.load(trained)
    with torch.no_grad():
        network.top.w_JNMI.mul_(1.1)
    # The evaluation of the old weights stays.
    shutil.rmtree(folder / "checkpoints")
    (folder / "config.json").unlink()
    network.save(folder)
    other = evaluate(folder, quick=True, samples=60, quiet=True)
    assert [row["name"] for row in other["rows"]] == ROWS[:16]
    assert other["rows"][3]["fid"] != result["rows"][3]["fid"]
    assert set(other["instantiation"]) == {"principal"}


def test_ablations_are_rows(trained, result, monkeypatch):
    monkeypatch.setattr(baselines, "variant", lambda network, codes, images=None, **changes: network)
    ablated = evaluate(trained, samples=60, ablate=True, quiet=True)
    names = [row["name"] for row in ablated["rows"]]
    assert {*ROWS, *baselines.ABLATIONS} <= set(names)
    assert len(names) == len(set(names))
    assert [row for row in ablated["rows"] if row["name"] in ROWS] == result["rows"]


def test_a_model_that_diverged_is_a_row_and_ends_its_group(trained):
    def diverged():
        raise DivergedError("at step 3")

    evaluation = Evaluation(trained, module.QUICK)
    images = evaluation.data.test.pixels[:30]
    rows = evaluation.rows({"real": lambda: baselines.Output(images), "other": diverged, "next": pytest.fail})
    assert [row["name"] for row in rows] == ["real", "other"]
    assert rows[1]["failed"] == "at step 3"
    assert rows[0]["precision"] == 1


def test_an_unfinished_run_and_wrong_settings_are_refused(trained, tmp_path):
    folder = copied(trained, tmp_path / "run")
    saved = checkpoint.newest(trained)
    checkpoint.save(folder, checkpoint.State("capsules-0", 5), saved.weights, {})
    with pytest.raises(RunError, match="is not finished"):
        evaluate(folder)
    with pytest.raises(InputError, match="samples must be an integer of 20 or more"):
        evaluate(trained, samples=19)


def test_without_labels_only_what_needs_none(tmp_path):
    pixels, _ = capspoe.data.load("digits", "train")
    np.save(tmp_path / "mine.npy", 255 - pixels[:200])  # and on a bright ground
    few = {"size": 12, "channels": 8, "layers": "4x6", "epochs": 1, "autoencoder_epochs": 1, "min_steps": 0}
    capspoe.train(tmp_path / "mine.npy", tmp_path / "run", quiet=True, threads=1, **few)
    found = evaluate(tmp_path / "run", quick=True, samples=40, quiet=True)
    assert (found["rows"], found["feature_net"], found["probe"]) == ([], None, None)
    assert found["clustering"]["capsules"] == 4
    assert found["instantiation"] == {}
    assert "log_p_lower" in found["likelihood"]


def test_the_command_prints_a_table(trained, result, capsys):
    main(["evaluate", str(trained), "--samples", "60"])
    text = capsys.readouterr()
    assert "nats per code" in text.out
    assert text.out.splitlines()[-1] == str(trained / "evaluation.json")
    assert "1/15 feature_net" in text.err
