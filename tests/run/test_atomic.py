"""Atomic writes: what reaches the disk, in which order, and what a failure leaves."""

import os
import subprocess
import sys

import numpy as np
import pytest

from capspoe.atomic import disk_errors, locked, npz_writer, remove_files, write_atomic
from capspoe.errors import RunError

FULL = OSError(28, "No space left on device")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "x.json"
    write_atomic(path, b"old")

    def full(handle):
        assert path.read_bytes() == b"old"
        raise FULL

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="No space"):
        write_atomic(path, b"new, and longer")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.json"]


@pytest.mark.skipif(os.name != "posix", reason="other systems sync no folders")
def test_the_file_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), real(handle)))
    write_atomic(tmp_path / "x.json", b"content")
    assert synced == [(tmp_path / "x.json").stat().st_ino, tmp_path.stat().st_ino]


def test_a_failing_disk_is_one_line(tmp_path):
    message = r"cannot write to .*: No space left on device; files saved before are intact"
    with pytest.raises(RunError, match=message), disk_errors(tmp_path):
        raise FULL
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match="cannot write to"):
        remove_files(tmp_path, "absent", "folder")


def test_an_npz_in_pieces_appears_only_when_it_is_complete(tmp_path):
    path, whole = tmp_path / "new" / "x.npz", np.arange(12.0).reshape(4, 3)
    with npz_writer(path) as file:
        file.add_pieces("x", (4, 3), np.float32, iter([whole[:3], whole[3:].T.copy().T]))
        assert not path.exists()
        file.add("label", np.array(["a", "bc"]))
    with np.load(path, allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["x"], whole.astype(np.float32), strict=True)
        assert stored["label"].tolist() == ["a", "bc"]
    before = path.read_bytes()

    def pieces():
        yield whole
        raise FULL

    with pytest.raises(RunError, match="No space"), npz_writer(path) as file:
        file.add_pieces("x", (8, 3), float, pieces())
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["x.npz"]


def test_the_lock_is_exclusive_and_ends_with_the_process(tmp_path):
    code = (
        "import os, sys; from pathlib import Path; from capspoe.atomic import locked\n"
        "with locked(Path(sys.argv[1]), wait=False): os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    with locked(tmp_path, wait=False), pytest.raises(RunError), locked(tmp_path, wait=False):
        pass
    with locked(tmp_path, wait=True):
        pass
