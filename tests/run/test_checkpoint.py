"""Settings and checkpoints: what is saved is read, damage is noticed, and bad content is refused."""

import hashlib
import json
import os
import random

import pytest
import torch

from capspoe.config import Config, preset
from capspoe.errors import RunError
from capspoe.run import checkpoint
from capspoe.run.checkpoint import State
from runs import WAYS, damage

WEIGHTS = {"w": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3)}
OPTIMIZER = {"0.momentum_buffer": torch.ones(4)}
WINDOW = {"steps": 1, "images": 2, "sums": {"loss": 0.1, "use": [0.5, 0.5]}}
CONFIG, IMAGE = preset("paper", "cifar10"), (28, 28, 3)


@pytest.fixture
def folder(tmp_path):
    checkpoint.create(tmp_path / "run", CONFIG, IMAGE)
    for step in (1, 2, 3):
        state = State("autoencoder", step, 1.5, 10 * step, WINDOW, "0", {"environment.json": "1"})
        checkpoint.save(tmp_path / "run", state, {**WEIGHTS, "n": torch.tensor(step)}, OPTIMIZER)
    return tmp_path / "run"


def test_what_is_saved_is_read(folder):
    saved = checkpoint.newest(folder)
    assert saved.state == State("autoencoder", 3, 1.5, 30, WINDOW, "0", {"environment.json": "1"})
    assert torch.equal(saved.weights["w"], WEIGHTS["w"])
    assert saved.weights["n"] == 3
    assert torch.equal(saved.optimizer["0.momentum_buffer"], torch.ones(4))
    assert (saved.path.name, saved.problems) == ("00000003", ())
    assert checkpoint.open_run(folder) == (CONFIG, IMAGE, None)


def test_the_newest_two_stay_and_nothing_else(folder):
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    inside = ("model.safetensors", "optimizer.safetensors", "state.json")
    assert files == [f"checkpoints/0000000{k}/{name}" for k in (2, 3) for name in inside] + ["config.json"]


def test_checkpoints_are_ordered_by_number_and_other_names_ignored(tmp_path):
    for name in ("00000010", "9", "100000000", ".00000011.writing", "x", "²"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert [path.name for path in checkpoint.numbered(tmp_path)] == ["9", "00000010", "100000000"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_damage_is_named_and_the_checkpoint_before_it_is_used(folder, how, file):
    for seed in range(5):
        path = folder / "checkpoints" / "00000003" / file
        intact = path.read_bytes()
        damage(path, how, random.Random(seed))
        saved = checkpoint.newest(folder)
        assert saved.weights["n"] == 2
        assert len(saved.problems) == 1
        assert file in saved.problems[0]
        path.write_bytes(intact)


def test_without_an_intact_checkpoint(folder):
    for number in ("00000002", "00000003"):
        damage(folder / "checkpoints" / number / "model.safetensors", "emptied", random.Random(0))
    with pytest.raises(RunError, match=r"no checkpoint is intact .*00000003.*00000002.*train again"):
        checkpoint.newest(folder)


def test_folders_without_a_checkpoint_or_a_run(tmp_path):
    with pytest.raises(RunError, match=r"is not a run folder: it has no config.json; train one first"):
        checkpoint.open_run(tmp_path / "nothing")
    checkpoint.create(tmp_path, Config(), IMAGE)
    with pytest.raises(RunError, match="has no checkpoint yet"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[" * 100000, "not valid JSON"),
        ("[1]", "does not match its checksum"),
        ("{}", "does not match its checksum"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=message):
        checkpoint.open_run(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": "20by16"}, "layers"),
        ({"gate": "open"}, "gate"),
        ({"channels": 12}, "channels"),
        ({"channels": True}, "channels"),
        ({"batch_size": -1}, "batch_size"),
        ({"learning_rate": "fast"}, "learning_rate"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"epochs": 1e99}, "epochs"),
        ({"image": [28, 28, 0]}, "no image shape"),
        ({"image": [28, 28, 10**6]}, "no image shape"),
        ({"image": [28, 28]}, "no image shape"),
        ({"image": [28, 28.0, 1]}, "no image shape"),
        ({"image": None}, "no image shape"),
        ({"format": True}, "has no format"),
        ({"format": 0}, "has no format"),
        ({"format": 1}, "has format 1, but this capspoe reads format 7; train it again"),
        ({"format": 99}, "has format 99, but this capspoe reads format 7; upgrade capspoe"),
        ({"run_this": "rm"}, "incomplete or unknown"),
    ],
)
def test_bad_settings_with_a_right_checksum_are_refused(tmp_path, change, message):
    content = checkpoint.settings(CONFIG, IMAGE) | change
    del content["sha256"]
    (tmp_path / "config.json").write_bytes(checkpoint.json_bytes(checkpoint.signed(content)))
    with pytest.raises(RunError, match=message):
        checkpoint.open_run(tmp_path)


def test_missing_settings_are_refused(tmp_path):
    content = checkpoint.settings(CONFIG, IMAGE)
    del content["sha256"], content["epochs"]
    (tmp_path / "config.json").write_bytes(checkpoint.json_bytes(checkpoint.signed(content)))
    with pytest.raises(RunError, match="incomplete or unknown"):
        checkpoint.open_run(tmp_path)


def sums(value):
    return {"window": {"steps": 1, "images": 9, "sums": {"loss": value}}}


@pytest.mark.parametrize(
    "change",
    [
        *({"step": -1}, {"step": 2**60}, {"step": 1.5}, {"step": None}, {"metrics_bytes": -1}),
        *({"seconds": -1.0}, {"seconds": "1"}, {"stage": "Capsules 0"}, {"stage": "../done"}, {"stage": 3}),
        *({"window": [1]}, {"files": []}, {"another": 1}, {"settings": None, "model_sha256": None}),
        *({"window": {"steps": 1}}, {"window": {"steps": -1, "images": 0, "sums": {}}}),
        *(sums("1"), sums([0.1, "x"]), sums(float("nan")), sums(10**400)),
        *({"files": {"/dev/zero": "x"}}, {"files": {"../x": "x"}}),
    ],
)
def test_a_bad_state_with_a_right_checksum_is_refused(folder, change):
    path = checkpoint.numbered(folder)[-1] / "state.json"
    content = checkpoint.read_json(path) | change
    path.write_bytes(checkpoint.json_bytes(checkpoint.signed(content)))
    with pytest.raises(RunError, match=r"state.json is missing or damaged|model.safetensors is damaged"):
        checkpoint.read(path.parent)
    assert checkpoint.newest(folder).state.step == 2


@pytest.mark.parametrize("how", WAYS)
def test_damaged_settings_come_from_the_newest_intact_checkpoint(folder, how):
    damage(folder / "checkpoints" / "00000003" / "state.json", "truncated", random.Random(0))
    path = folder / "config.json"
    intact = path.read_bytes()
    for seed in range(10):
        damage(path, how, random.Random(seed))
        config, image, problem = checkpoint.open_run(folder)
        assert (config, image) == (CONFIG, IMAGE)
        changed = not path.exists() or json.loads(intact) != parsed(path)
        assert not changed or "config.json" in problem
        path.write_bytes(intact)


def parsed(path):
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


def test_a_checkpoint_keeps_the_settings_even_after_config_json_is_lost(folder):
    (folder / "config.json").unlink()
    checkpoint.save(folder, State("autoencoder", 4), WEIGHTS, OPTIMIZER)
    assert checkpoint.read_json(checkpoint.numbered(folder)[-1] / "state.json")["settings"]["data"] == "cifar10"


def test_without_a_checkpoint_damaged_settings_are_refused(tmp_path):
    checkpoint.create(tmp_path, Config(), (28, 28, 1))
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"epochs": 3', '"epochs": 4'))
    with pytest.raises(RunError, match=r"config.json does not match its checksum"):
        checkpoint.open_run(tmp_path)


def test_temporary_files_of_a_killed_process(folder):
    """They are removed at the next start, and never in the way of a new checkpoint."""
    half = folder / "checkpoints" / ".00000004.writing"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    (folder / ".config.json.writing").write_bytes(b"half")
    assert checkpoint.newest(folder).weights["n"] == 3
    checkpoint.save(folder, State("autoencoder", 4), WEIGHTS, {})
    half.mkdir()
    checkpoint.clean(folder)
    assert list(folder.rglob(".*")) == []
    assert checkpoint.newest(folder).state.step == 4


@pytest.mark.parametrize("call", range(1, 6))
def test_a_full_disk_is_one_clear_line_and_loses_nothing(folder, monkeypatch, call):
    """Five times something is flushed: three files, their folder, and the folder above it."""
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write to .*: No space left on device; files saved before"):
        checkpoint.save(folder, State("autoencoder", 4), WEIGHTS, OPTIMIZER)
    monkeypatch.undo()
    assert checkpoint.newest(folder).state.step == (3 if call < 5 else 4)
    assert checkpoint.newest(folder).problems == ()
    assert not list((folder / "checkpoints").glob(".*"))


@pytest.mark.skipif(os.name != "posix", reason="other systems sync no folders")
def test_all_of_a_checkpoint_is_on_the_disk_before_its_name_is(folder, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), real(handle)))
    final = checkpoint.save(folder, State("autoencoder", 1), WEIGHTS, {})
    assert set(synced[:3]) == {path.stat().st_ino for path in final.iterdir()}
    assert synced[3:] == [final.stat().st_ino, final.parent.stat().st_ino]


def test_an_exported_folder_reads_like_a_finished_run(tmp_path):
    data = checkpoint.tensor_bytes(WEIGHTS)
    content = checkpoint.settings(CONFIG, IMAGE, weights_sha256=hashlib.sha256(data).hexdigest())
    (tmp_path / "config.json").write_bytes(checkpoint.json_bytes(content))
    (tmp_path / "model.safetensors").write_bytes(data)
    saved = checkpoint.newest(tmp_path)
    assert saved.state.stage == checkpoint.DONE
    assert torch.equal(saved.weights["w"], WEIGHTS["w"])
    (tmp_path / "model.safetensors").write_bytes(data[:-1] + b"?")
    with pytest.raises(RunError, match="its checksum differs"):
        checkpoint.newest(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1")
    with pytest.raises(RunError, match="git lfs pull"):
        checkpoint.newest(tmp_path)


def test_weights_that_are_a_device_or_larger_than_the_memory_are_not_read(folder, monkeypatch):
    newest = checkpoint.numbered(folder)[-1] / "model.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "memory", lambda: 10)
        with pytest.raises(RunError, match="more than the memory"):
            checkpoint.read(newest.parent)
    newest.unlink()
    newest.symlink_to("/dev/zero")  # reading it would never end
    with pytest.raises(RunError, match="not a regular file"):
        checkpoint.read(newest.parent)
