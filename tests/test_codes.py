"""The codes on disk: written in blocks, resumed where they stopped, and never trusted blindly."""

import json

import numpy as np
import pytest

from capspoe import codes
from capspoe.checkpoint import State
from capspoe.journal import Interrupted, Journal

SHAPE = (2 * codes.BLOCK + 700, 3, 2)
VALUES = np.random.default_rng(0).random(SHAPE).astype(np.float16)


class Encoder:
    """Gives the codes of rows, notes which were asked for, and may ask to stop after some."""

    def __init__(self, journal, stop_after=None):
        self.journal, self.stop_after, self.rows = journal, stop_after, []

    def __call__(self, rows):
        for start in range(0, len(rows), codes.BATCH):
            part = rows[start : start + codes.BATCH]
            self.rows += part.tolist()
            self.journal.stop_requested = self.stop_after is not None and len(self.rows) >= self.stop_after
            yield VALUES[part].astype(np.float32)


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path, State("capsules-0", 0), 1e6, quiet=True)
    yield journal
    journal.close()


def test_codes_are_written_once(tmp_path, journal):
    encoder = Encoder(journal)
    assert np.array_equal(codes.prepared(tmp_path, SHAPE, encoder, journal), VALUES)
    assert encoder.rows == list(range(SHAPE[0]))
    assert np.array_equal(codes.prepared(tmp_path, SHAPE, encoder, journal), VALUES)
    assert len(encoder.rows) == SHAPE[0]
    codes.remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_an_interrupted_encoding_carries_on(tmp_path, journal):
    with pytest.raises(Interrupted):
        codes.prepared(tmp_path, SHAPE, Encoder(journal, codes.BLOCK - 1), journal)
    journal.stop_requested = False
    encoder = Encoder(journal)
    assert np.array_equal(codes.prepared(tmp_path, SHAPE, encoder, journal), VALUES)
    assert encoder.rows == list(range(codes.BLOCK, SHAPE[0]))


@pytest.mark.parametrize("damage", ["flipped", "cut", "description"])
def test_damaged_blocks_are_computed_again(tmp_path, journal, damage):
    codes.prepared(tmp_path, SHAPE, Encoder(journal), journal)
    content = bytearray((tmp_path / "codes.npy").read_bytes())
    if damage == "flipped":
        content[-3] ^= 1
    elif damage == "cut":
        del content[-3:]
    else:
        (tmp_path / "codes.json").write_text(
            json.dumps({"shape": list(SHAPE), "sha256": {"0": "x", "9": "y"}})
        )
    (tmp_path / "codes.npy").write_bytes(content)
    encoder = Encoder(journal)
    assert np.array_equal(codes.prepared(tmp_path, SHAPE, encoder, journal), VALUES)
    assert encoder.rows == list(range(2 * codes.BLOCK if damage == "flipped" else 0, SHAPE[0]))


def test_codes_of_other_images_are_not_used(tmp_path, journal):
    codes.prepared(tmp_path, SHAPE, Encoder(journal), journal)
    other = (SHAPE[0] - 1, *SHAPE[1:])
    encoder = Encoder(journal)
    assert codes.prepared(tmp_path, other, encoder, journal).shape == other
    assert len(encoder.rows) == other[0]
