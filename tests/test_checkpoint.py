"""The run folder survives what happens to files."""

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest
import torch

from capspoe import checkpoint
from capspoe.checkpoint import State
from capspoe.config import Config, preset
from capspoe.errors import RunError
from runs import WAYS, damage

WEIGHTS = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3)}
MEMORY = {"0.momentum_buffer": torch.ones(4)}


@pytest.fixture
def folder(tmp_path):
    checkpoint.create(tmp_path / "run", preset("paper", "cifar10"), (28, 28, 3))
    for step in (1, 2, 3):
        state = State("autoencoder", step, 1.5, 10 * step, {"steps": 1, "images": 2, "sums": {"loss": 0.1}})
        checkpoint.save(tmp_path / "run", state, {**WEIGHTS, "n": torch.tensor(step)}, MEMORY)
    return tmp_path / "run"


def test_what_is_saved_is_read(folder):
    saved = checkpoint.newest(folder)
    assert saved.state == State("autoencoder", 3, 1.5, 30, {"steps": 1, "images": 2, "sums": {"loss": 0.1}})
    assert torch.equal(saved.weights["w"], WEIGHTS["w"])
    assert saved.weights["n"] == 3
    assert torch.equal(saved.optimizer["0.momentum_buffer"], torch.ones(4))
    assert saved.damaged == []
    run = checkpoint.open_run(folder)
    assert run.config == preset("paper", "cifar10")
    assert run.image == (28, 28, 3)


def test_only_the_newest_two_stay_and_nothing_else(folder):
    assert [path.name for path in sorted((folder / "checkpoints").iterdir())] == ["00000002", "00000003"]
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoints", "config.json"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("seed", range(5))
def test_damage_is_named_and_the_checkpoint_before_it_is_used(folder, how, file, seed):
    damage(folder / "checkpoints" / "00000003" / file, how, random.Random(seed))
    saved = checkpoint.newest(folder)
    assert saved.weights["n"] == 2
    assert len(saved.damaged) == 1
    assert file in saved.damaged[0]


def test_when_no_checkpoint_is_whole_it_says_so(folder):
    for number in ("00000002", "00000003"):
        damage(folder / "checkpoints" / number / "model.safetensors", "emptied", random.Random(0))
    with pytest.raises(RunError, match="no checkpoint is whole"):
        checkpoint.newest(folder)


def test_no_checkpoint_yet(tmp_path):
    checkpoint.create(tmp_path, Config(), (28, 28, 1))
    with pytest.raises(RunError, match="has no checkpoint yet"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100000, "not valid JSON"),
        ("[1]", "does not say its format"),
        ('{"format": true}', "does not say its format"),
        ('{"format": 99}', "made by a newer capspoe .format 99"),
        ('{"format": 1}', "image shape"),
        ('{"format": 1, "image": [28, 28, 1]}', "'data' are not complete"),
    ],
)
def test_a_config_that_cannot_be_read_is_refused(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        checkpoint.open_run(tmp_path)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("capsules", "layers", "20by16"),
        ("capsules", "gate", "open"),
        ("autoencoder", "channels", 12),
        ("autoencoder", "channels", True),
        ("training", "batch", -1),
        ("training", "lr", "fast"),
        ("training", "lr", float("nan")),
        ("training", "epochs", 1e99),
    ],
)
def test_every_setting_is_checked(tmp_path, part, name, value):
    checkpoint.create(tmp_path, preset("paper", "cifar10"), (28, 28, 3))
    stored = json.loads((tmp_path / "config.json").read_text())
    stored[part][name] = value
    del stored["sha256"]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(RunError, match=name):
        checkpoint.open_run(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": [28, 28, 0]}, "image shape"),
        ({"image": [28, 28, 10**6]}, "image shape"),
        ({"image": [28, 28]}, "image shape"),
        ({"image": [28, 28.0, 1]}, "image shape"),
        ({"format": 0}, "does not say its format"),
        ({"run_this": "rm"}, "unknown entries .run_this"),
    ],
)
def test_settings_of_a_stranger_are_refused(tmp_path, change, message):
    """No checksum says that they are damaged."""
    checkpoint.create(tmp_path, preset(), (28, 28, 1))
    stored = json.loads((tmp_path / "config.json").read_text()) | change
    del stored["sha256"]
    (tmp_path / "config.json").write_text(json.dumps(stored))
    with pytest.raises(RunError, match=message):
        checkpoint.open_run(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        *({"step": -1}, {"step": 2**60}, {"step": 1.5}, {"step": None}, {"metrics_bytes": -1}),
        *({"seconds": -1.0}, {"seconds": "1"}, {"stage": "capsules-x"}, {"stage": "../done"}, {"stage": 3}),
        *({"window": []}, {"files": []}, {"metrics_sha256": 1}, {"another": 1}, {"sha256": 5}),
        *({"window": {"steps": 1}}, {"window": {"steps": -1, "images": 0, "sums": {}}}),
        *(
            {"window": {"steps": 1, "images": 9, "sums": {"loss": s}}}
            for s in ("1", [0.1, "x"], float("nan"), 10**400)
        ),
        *({"files": {"/dev/zero": "x"}}, {"files": {"../x": "x"}}, {"files": {"samples.png": 1}}),
    ],
)
def test_the_state_of_a_stranger_is_refused(folder, change):
    """Its checksum is right."""
    path = checkpoint.numbered(folder)[-1]
    envelope = json.loads((path / "state.json").read_text())
    content = json.dumps(json.loads(envelope["state"]) | change)
    changed = {"state": content, "sha256": hashlib.sha256(content.encode()).hexdigest()}
    (path / "state.json").write_text(json.dumps(changed))
    with pytest.raises(RunError, match=r"state.json is missing or damaged"):
        checkpoint.read(path)
    assert checkpoint.newest(folder).state.step == 2


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("seed", range(10))
def test_damaged_settings_are_named_and_taken_from_the_newest_checkpoint(folder, how, seed):
    damage(folder / "config.json", how, random.Random(seed))
    run = checkpoint.open_run(folder)
    assert run[:2] == (preset("paper", "cifar10"), (28, 28, 3))
    try:
        harmless = json.loads((folder / "config.json").read_text()) == checkpoint_settings(folder)
    except (OSError, ValueError):
        harmless = False
    assert harmless or "config.json" in run.damaged


def checkpoint_settings(folder):
    """What config.json said, as the newest checkpoint has it."""
    copy = checkpoint._settings_in_checkpoints(folder)
    return {**copy, "sha256": checkpoint._checksum(copy)}


def test_without_a_checkpoint_damaged_settings_are_refused(tmp_path):
    checkpoint.create(tmp_path, Config(), (28, 28, 1))
    text = (tmp_path / "config.json").read_text()
    assert '"epochs": 10' in text
    (tmp_path / "config.json").write_text(text.replace('"epochs": 10', '"epochs": 11'))
    with pytest.raises(RunError, match=r"the checksum of .*config.json differs"):
        checkpoint.open_run(tmp_path)


def test_a_damaged_checkpoint_does_not_push_out_a_whole_one(folder):
    damage(folder / "checkpoints" / "00000003" / "model.safetensors", "flipped", random.Random(0))
    checkpoint.drop_damaged(folder)
    checkpoint.save(folder, State("autoencoder", 3), WEIGHTS, MEMORY)
    for path in checkpoint.numbered(folder):
        checkpoint.read(path)
    assert len(checkpoint.numbered(folder)) == 2


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        checkpoint.open_run(tmp_path / "nothing")


def test_leftovers_of_a_killed_writer_are_removed(folder):
    (folder / "checkpoints" / ".writing-00000004").mkdir()
    (folder / "checkpoints" / ".writing-00000004" / "model.safetensors").write_bytes(b"half")
    (folder / ".config.json.writing").write_bytes(b"half")
    checkpoint.clean(folder)
    assert sorted(p.name for p in folder.rglob(".*")) == []
    assert checkpoint.newest(folder).weights["n"] == 3


def test_only_one_training_at_a_time(folder):
    first, second = checkpoint.locked(folder), checkpoint.locked(folder)
    with first, pytest.raises(RunError, match="another training is writing"), second:
        pass
    with checkpoint.locked(folder):
        held = True
    assert held


def test_the_lock_goes_with_the_process(folder):
    code = (
        "import os, sys; from pathlib import Path; from capspoe import checkpoint\n"
        "with checkpoint.locked(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    assert done.returncode == -9
    with checkpoint.locked(folder):
        held = True
    assert held


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX")
def test_a_full_disk_is_one_clear_line_and_loses_nothing(folder, monkeypatch):
    real = os.fsync
    calls = []

    def full(handle):
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        RunError, match=r"cannot write to .*: No space left on device; what was saved before is whole"
    ):
        checkpoint.save(folder, State("autoencoder", 4), WEIGHTS, MEMORY)
    monkeypatch.undo()
    assert checkpoint.newest(folder).weights["n"] == 3
    assert not list((folder / "checkpoints").glob(".*"))
