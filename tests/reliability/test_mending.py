"""A run that is carried on, or was finished, names each of its files that is not what it was."""

import json
import shutil

import pytest

from capspoe import checkpoint, train
from runs import QUICK, files_of, same_weights

SETTINGS = {**QUICK, "limit": 64, "autoencoder_epochs": 1, "epochs": 1, "components": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train("digits", folder, quiet=True, **SETTINGS)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "run")


def said_on_resume(run, capsys):
    capsys.readouterr()
    train("digits", run, **SETTINGS)
    return " ".join(capsys.readouterr().err.split())


def test_a_whole_run_has_nothing_to_say(run, finished, capsys):
    assert said_on_resume(run, capsys) == ""
    assert files_of(run) == files_of(finished)


def test_lost_curves_are_named(run, capsys):
    content = bytearray((run / "metrics.jsonl").read_bytes())
    content[10] ^= 1
    (run / "metrics.jsonl").write_bytes(content)
    said = said_on_resume(run, capsys)
    assert "metrics.jsonl is missing or damaged; the curves are lost, the network is whole" in said


@pytest.mark.parametrize("content", [None, b"", b"\x89PNG"])
def test_a_lost_picture_is_painted_again(run, finished, capsys, content):
    (run / "samples.png").unlink()
    if content is not None:
        (run / "samples.png").write_bytes(content)
    assert "samples.png is missing or damaged; painting it again" in said_on_resume(run, capsys)
    assert files_of(run) == files_of(finished)


def test_lost_circumstances_are_named_and_written_again(run, capsys):
    stored = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**stored, "seed": 7}))
    said = said_on_resume(run, capsys)
    assert "environment.json is missing or damaged; it now tells of this machine" in said
    assert json.loads((run / "environment.json").read_text())["seed"] == 0


def test_lost_settings_are_named_and_written_again(run, finished, capsys):
    (run / "config.json").write_text("{")
    said = said_on_resume(run, capsys)
    assert "config.json is not valid JSON; written again from the newest checkpoint" in said
    assert (run / "config.json").read_bytes() == (finished / "config.json").read_bytes()


def test_a_damaged_checkpoint_is_named_and_does_not_stay(run, finished, capsys):
    """The one before it, of the prior, is carried on from: the same network comes out."""
    newest = checkpoint.numbered(run)[-1]
    (newest / "optimizer.safetensors").write_bytes(b"")
    said = said_on_resume(run, capsys)
    assert "optimizer.safetensors is damaged: its checksum differs; carrying on from the checkpoint" in said
    assert same_weights(run, finished)
    for path in checkpoint.numbered(run):
        checkpoint.read(path)


def test_litter_of_a_killed_training_goes(run, finished, capsys):
    (run / "codes.npy").write_bytes(b"x")
    (run / "groups.npy").write_bytes(b"x")
    (run / ".config.json.writing").write_bytes(b"x")
    assert said_on_resume(run, capsys) == ""
    assert files_of(run) == files_of(finished)
