"""A run folder at another path, with its images at another path; and images that are not what they were."""

import shutil

import numpy as np
import pytest
from PIL import Image

from capspoe import CapsulePoE, data, mending, train
from capspoe.cli import main
from capspoe.errors import RunError
from capspoe.journal import Interrupted
from runs import QUICK, files_of, same_weights, stopping_after

COUNT = 300
IMAGES = np.random.default_rng(0).integers(0, 255, (COUNT, 16, 16), np.uint8)
SETTINGS = {**QUICK, "limit": None, "autoencoder_epochs": 1, "epochs": 1, "components": 1}


def stopped(images, folder, steps):
    """The run, stopped after so many steps."""
    with stopping_after(steps), pytest.raises(Interrupted):
        train(images, folder, quiet=True, **SETTINGS)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """x.npy, `done` trained on it, and `half` of the same in each stage."""
    home = tmp_path_factory.mktemp("home")
    np.save(home / "x.npy", IMAGES)
    train(home / "x.npy", home / "done", quiet=True, **SETTINGS)
    stopped(home / "x.npy", home / "half-1", 4)
    stopped(home / "x.npy", home / "half-2", 14)
    return home


@pytest.fixture
def other(home, tmp_path):
    """A copy of all of it under other names, the images too; the old ones cannot be found."""
    shutil.copytree(home, tmp_path / "other machine")
    (home / "x.npy").rename(home / "away.npy")
    (tmp_path / "other machine" / "x.npy").rename(tmp_path / "other machine" / "renamed.npy")
    yield tmp_path / "other machine"
    (home / "away.npy").rename(home / "x.npy")


@pytest.mark.parametrize("half", ["half-1", "half-2"])
def test_a_copied_run_is_carried_on_where_its_images_have_another_path(home, other, half):
    main(["train", str(other / "renamed.npy"), "--out", str(other / half), "--resume"])
    assert same_weights(home / "done", other / half)
    assert CapsulePoE.load(other / half).config.data.data == str(other / "renamed.npy")


def test_a_copied_run_samples_and_learns_where_its_images_are(home, other, tmp_path, capsys):
    one, two = CapsulePoE.load(home / "done"), CapsulePoE.load(other / "done")
    assert np.array_equal(one.sample(3).images, two.sample(3).images)
    for verb in (["encode", "--out", str(tmp_path / "n.npz")], ["evaluate", "--quick"], ["reconstruct"]):
        with pytest.raises(SystemExit) as stop:
            main([verb[0], str(other / "done"), *verb[1:]])
        assert stop.value.code == 1
        assert "x.npy" in capsys.readouterr().err
    main(["train", str(other / "renamed.npy"), "--out", str(other / "done"), "--resume"])
    main(["encode", str(other / "done"), "--split", "train", "--out", str(tmp_path / "y.npz")])
    assert len(np.load(tmp_path / "y.npz")["on"]) == len(data.load(other / "renamed.npy").pixels)
    assert same_weights(home / "done", other / "done")


def changed(how):
    images = IMAGES.copy()
    if how == "one number of one image":
        images[171, 3, 3] ^= 1
    elif how == "another order":
        images = images[::-1]
    elif how == "one more":
        images = np.concatenate([images, images[:1]])
    elif how == "one less":
        images = images[:-1]
    else:
        images = images[:, :, :15]
    return images


WAYS = ["one number of one image", "another order", "one more", "one less", "another shape"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("half", ["half-1", "half-2"])
def test_changed_images_are_noticed_before_anything_is_written(home, tmp_path, half, how):
    folder = tmp_path / "run"
    shutil.copytree(home / half, folder)
    before = files_of(folder)
    try:
        np.save(home / "x.npy", changed(how))
        with pytest.raises(RunError, match="the images are not those with which"):
            train(home / "x.npy", folder, quiet=True, **SETTINGS)
        assert files_of(folder) == before
    finally:
        np.save(home / "x.npy", IMAGES)
    train(home / "x.npy", folder, quiet=True, **SETTINGS)
    assert same_weights(home / "done", folder)


def test_a_changed_file_of_a_folder_is_noticed(tmp_path):
    for k, image in enumerate(IMAGES[:70]):
        (tmp_path / "pictures").mkdir(exist_ok=True)
        Image.fromarray(image).save(tmp_path / "pictures" / f"{k:03d}.png")
    stopped(tmp_path / "pictures", tmp_path / "run", 2)
    Image.fromarray(255 - IMAGES[40]).save(tmp_path / "pictures" / "040.png")
    with pytest.raises(RunError, match="the images are not those with which"):
        train(tmp_path / "pictures", tmp_path / "run", quiet=True, **SETTINGS)


def test_many_images_are_known_again_by_some_of_them(monkeypatch):
    """And so are those of a named data set, whose checksums are compared whenever it is opened."""
    source = data.SequenceSource(list(IMAGES), data.Prepare())
    all_of_them = mending.fingerprint(source, "x.npy")
    some = mending.fingerprint(source, "mnist")
    monkeypatch.setattr(mending, "ALL_OF", source.nbytes - 1)
    assert mending.fingerprint(source, "x.npy") == some != all_of_them
