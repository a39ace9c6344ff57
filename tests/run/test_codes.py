"""The codes on disk: written once, and never trusted blindly."""

import json

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.data import ArrayDataset
from capspoe.errors import RunError
from capspoe.model.build import build_network
from capspoe.run import codes
from capspoe.run.checkpoint import State
from capspoe.run.log import Interrupted, TrainingLog
from capspoe.training.codes import codes_in_memory

COUNT = 3 * codes.BATCH + 188
PIXELS = np.random.default_rng(0).integers(0, 255, (COUNT, 5, 5, 1), np.uint8)


class Counting(ArrayDataset):
    """Notes which rows are read, and asks to stop after some."""

    def __init__(self, pixels=PIXELS, log=None, stop_after=None):
        super().__init__(pixels)
        self.log, self.stop_after, self.rows = log, stop_after, []

    def read(self, indices):
        self.rows += list(indices)
        if self.stop_after is not None and len(self.rows) >= self.stop_after:
            self.log.stop_requested = True
        return super().read(indices)


@pytest.fixture(scope="module")
def network():
    return build_network(Config(channels=8, layers="2x3"), (5, 5, 1)).eval()


@pytest.fixture(scope="module")
def values(network):
    with torch.no_grad():
        x = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255
        return torch.cat([network.codec.encode(part) for part in x.split(codes.BATCH)]).half().numpy()


@pytest.fixture
def log(tmp_path):
    log = TrainingLog(tmp_path, State(), 1e6, quiet=True)
    yield log
    log.close()


def test_codes_are_written_once(network, values, tmp_path, log):
    dataset = Counting()
    found = codes.codes_in_folder(network, dataset, tmp_path, log)
    np.testing.assert_array_equal(found, values, strict=True)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(codes_in_memory(network, PIXELS), values, strict=True)
    assert dataset.rows == list(range(COUNT))
    np.testing.assert_array_equal(codes.codes_in_folder(network, dataset, tmp_path, log), values)
    assert len(dataset.rows) == COUNT


def test_an_interrupted_encoding_starts_again(network, values, tmp_path, log):
    with pytest.raises(Interrupted):
        codes.codes_in_folder(network, Counting(log=log, stop_after=codes.BATCH + 1), tmp_path, log)
    log.stop_requested = False
    np.testing.assert_array_equal(codes.codes_in_folder(network, Counting(), tmp_path, log), values)


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "deleted", "checksums", "description"])
def test_damaged_codes_are_computed_again(network, values, tmp_path, log, damage):
    codes.codes_in_folder(network, Counting(), tmp_path, log)
    path = tmp_path / "codes.npy"
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[-3] ^= 1
    elif damage == "cut":
        del content[-3:]
    elif damage == "emptied":
        content.clear()
    elif damage == "checksums":
        (tmp_path / "codes.json").write_text(json.dumps({"codes.npy": "x", "shape": values.shape}))
    elif damage == "description":
        (tmp_path / "codes.json").write_text("[")
    path.write_bytes(content)
    if damage == "deleted":
        path.unlink()
    dataset = Counting()
    np.testing.assert_array_equal(codes.codes_in_folder(network, dataset, tmp_path, log), values)
    assert dataset.rows == list(range(COUNT))


def test_codes_of_other_images_are_not_used(network, tmp_path, log):
    codes.codes_in_folder(network, Counting(), tmp_path, log)
    dataset = Counting(PIXELS[1:])
    assert len(codes.codes_in_folder(network, dataset, tmp_path, log)) == COUNT - 1
    assert dataset.rows == list(range(COUNT - 1))


def test_a_disk_that_fails_is_one_line(network, values, tmp_path, log, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log, "save_due", full)
    with pytest.raises(RunError, match="No space left on device; files saved before are intact"):
        codes.codes_in_folder(network, Counting(), tmp_path, log)
    monkeypatch.undo()
    np.testing.assert_array_equal(codes.codes_in_folder(network, Counting(), tmp_path, log), values)
