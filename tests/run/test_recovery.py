"""A run that is resumed, or was finished, names each damaged file and recovers it."""

import json
import random
import shutil

import numpy as np
import pytest
from PIL import Image

from capspoe import train
from capspoe.cli import main
from capspoe.errors import RunError
from capspoe.run import checkpoint
from capspoe.run.log import Interrupted
from capspoe.run.model import CapsulePoE
from runs import QUICK, damage, files_of, same_weights, stopping_after

COUNT = 100
IMAGES = np.random.default_rng(0).integers(0, 255, (COUNT, 16, 16), np.uint8)
SETTINGS = {**QUICK, "limit": None, "autoencoder_epochs": 1, "epochs": 2, "prior_components": 1}


def warnings_of(folder, capsys):
    """What resuming the finished run prints."""
    capsys.readouterr()
    train("digits", folder, **QUICK)
    return capsys.readouterr().err


def test_an_intact_finished_run_is_left_as_it_is(run_copy, run, capsys):
    assert warnings_of(run_copy, capsys) == ""
    assert files_of(run_copy) == files_of(run)


@pytest.mark.parametrize("how", ["deleted", "emptied", "flipped"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("metrics.jsonl", "is missing or damaged; the curves are lost, the network is intact"),
        ("samples.png", "is missing or damaged; drawing it again"),
        ("environment.json", "is missing or damaged; it now describes this machine"),
        ("config.json", "restored from the newest checkpoint"),
    ],
)
def test_a_damaged_file_of_a_finished_run_is_named_and_restored(run_copy, run, capsys, name, message, how):
    damage(run_copy / name, how, random.Random(1))
    said = warnings_of(run_copy, capsys)
    assert said.count("\n") == 1
    assert said.startswith("warning: ")
    assert name in said
    assert message in said
    if name != "metrics.jsonl":
        assert files_of(run_copy) == files_of(run)


def test_a_damaged_checkpoint_is_named_and_removed(run_copy, run, capsys):
    """Training resumes from the one before it, of the prior, and gives the same network."""
    newest = checkpoint.numbered(run_copy)[-1]
    (newest / "optimizer.safetensors").write_bytes(b"")
    said = warnings_of(run_copy, capsys)
    assert "optimizer.safetensors is damaged: its checksum differs; resuming from the checkpoint before" in said
    assert same_weights(run_copy, run)
    assert len(checkpoint.numbered(run_copy)) == 2
    for path in checkpoint.numbered(run_copy):
        checkpoint.read(path)


def test_temporary_files_of_a_killed_training_are_removed(run_copy, run, capsys):
    for name in ("codes.npy", "codes.json", ".config.json.writing"):
        (run_copy / name).write_bytes(b"x")
    (run_copy / "checkpoints" / ".00000009.writing").mkdir()
    assert warnings_of(run_copy, capsys) == ""
    assert files_of(run_copy) == files_of(run)
    assert len(list((run_copy / "checkpoints").iterdir())) == 2


# Images that moved or changed.


def stopped(images, folder, steps):
    """The run, stopped after a number of steps."""
    with stopping_after(steps), pytest.raises(Interrupted):
        train(images, folder, quiet=True, **SETTINGS)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """x.npy, `done` trained on it, and `half` of the same in each stage."""
    home = tmp_path_factory.mktemp("home")
    np.save(home / "x.npy", IMAGES)
    train(home / "x.npy", home / "done", quiet=True, **SETTINGS)
    stopped(home / "x.npy", home / "half-1", 2)
    stopped(home / "x.npy", home / "half-2", 5)
    return home


@pytest.fixture
def moved(home, tmp_path):
    """A copy of all of it under other names, the images too; the old ones cannot be found."""
    shutil.copytree(home, tmp_path / "moved")
    (home / "x.npy").rename(home / "away.npy")
    (tmp_path / "moved" / "x.npy").rename(tmp_path / "moved" / "renamed.npy")
    yield tmp_path / "moved"
    (home / "away.npy").rename(home / "x.npy")


@pytest.mark.parametrize("name", ["half-1", "half-2", "done"])
def test_a_moved_run_is_resumed_where_its_images_have_another_path(home, moved, name):
    main(["train", str(moved / "renamed.npy"), "--out", str(moved / name), "--resume", "--threads", "1"])
    assert same_weights(home / "done", moved / name)
    assert CapsulePoE.load(moved / name).config.data == str(moved / "renamed.npy")


CHANGES = {
    "one pixel": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 171 * 16, x ^ 1, x),
    "another order": lambda x: x[::-1],
    "one more": lambda x: np.concatenate([x, x[:1]]),
    "one less": lambda x: x[:-1],
    "another shape": lambda x: x[:, :, :15],
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_images_are_noticed_before_anything_is_written(home, tmp_path, change):
    folder = shutil.copytree(home / "half-2", tmp_path / "run")
    before = files_of(folder)
    try:
        np.save(home / "x.npy", CHANGES[change](IMAGES))
        with pytest.raises(RunError, match=r"the images differ from those with which .* restore them"):
            train(home / "x.npy", folder, quiet=True, **SETTINGS)
    finally:
        np.save(home / "x.npy", IMAGES)
    assert files_of(folder) == before


def test_a_changed_file_of_a_folder_is_noticed(tmp_path):
    (tmp_path / "pictures").mkdir()
    for k, image in enumerate(IMAGES[:70]):
        Image.fromarray(image).save(tmp_path / "pictures" / f"{k:03d}.png")
    stopped(tmp_path / "pictures", tmp_path / "run", 1)
    Image.fromarray(255 - IMAGES[40]).save(tmp_path / "pictures" / "040.png")
    with pytest.raises(RunError, match="the images differ"):
        train(tmp_path / "pictures", tmp_path / "run", quiet=True, **SETTINGS)


@pytest.mark.parametrize("content", ["", "[", "[]", "{}", '{"images_sha256": 5}'])
def test_an_environment_that_cannot_be_read(home, tmp_path, content):
    """Without a fingerprint nothing is compared; with a wrong one the images differ."""
    folder = shutil.copytree(home / "done", tmp_path / "run")
    (folder / "environment.json").write_text(content)
    if "5" in content:
        with pytest.raises(RunError, match="the images differ"):
            train(home / "x.npy", folder, quiet=True, **SETTINGS)
    else:
        train(home / "x.npy", folder, quiet=True, **SETTINGS)
        assert json.loads((folder / "environment.json").read_text())["images"] == 91  # the rest is the test split
