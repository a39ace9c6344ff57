"""Files that are the old ones or the new ones: what reaches the disk, and in which order."""

import os

import pytest
import torch

from capspoe import checkpoint
from capspoe.checkpoint import State
from capspoe.config import Config
from capspoe.durable import remove_files, write_atomically, writing
from capspoe.errors import RunError

FULL = OSError(28, "No space left on device")


@pytest.fixture
def synced(monkeypatch):
    """The inodes that were brought to the disk, in order."""
    seen, real = [], os.fsync

    def fsync(handle):
        seen.append(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return seen


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_atomically(path, b"old")

    def full(handle):
        raise FULL

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new, and longer")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.skipif(os.name != "posix", reason="other systems sync no folders")
def test_the_file_is_on_the_disk_before_its_name_is(tmp_path, synced):
    write_atomically(tmp_path / "x.json", b"content")
    assert synced == [(tmp_path / "x.json").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.skipif(os.name != "posix", reason="other systems sync no folders")
def test_all_of_a_checkpoint_is_on_the_disk_before_its_name_is(tmp_path, synced):
    checkpoint.create(tmp_path, Config(), (28, 28, 1))
    synced.clear()
    final = checkpoint.save(tmp_path, State("autoencoder", 1), {"w": torch.ones(2)}, {})
    files = {path.stat().st_ino for path in final.iterdir()}
    assert set(synced[:3]) == files
    assert synced[3:] == [final.stat().st_ino, final.parent.stat().st_ino]


def test_trouble_with_the_disk_is_one_line(tmp_path):
    message = r"cannot write to .*: No space left on device; what was saved before is whole"
    with pytest.raises(RunError, match=message), writing(tmp_path):
        raise FULL
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="cannot write to"):
        remove_files(tmp_path, "absent", "folder")
