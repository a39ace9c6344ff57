"""`capspoe explain`: what it writes and says."""

import json

import numpy as np
import pytest
from PIL import Image

from capspoe.cli import main
from capspoe.commands import explain
from capspoe.errors import InputError
from capspoe.run.model import SHIFT, CapsulePoE


def test_a_suffix_in_capitals_means_the_same(run, model, images, tmp_path):
    np.save(tmp_path / "own.npy", images[:2])
    out = tmp_path / "X.NPZ"
    main(["explain", str(run), str(tmp_path / "own.npy"), "--objects", "2", "--out", str(out)])
    expected = model.explain(images[:2], 2, shift=SHIFT)
    with np.load(out) as stored:
        assert sorted(stored) == sorted(expected._fields)
        np.testing.assert_array_equal(stored["capsule"], expected.capsule)


def test_objects_may_be_off_their_place_as_in_the_explorer():
    assert explain.SHIFT == SHIFT


def test_a_file_that_is_no_image_is_refused_in_one_line(run, tmp_path, capsys):
    (tmp_path / "bad.png").write_bytes(b"hello")
    with pytest.raises(SystemExit):
        main(["explain", str(run), str(tmp_path / "bad.png")])
    message = capsys.readouterr().err
    assert "bad.png cannot be read as an image (not an image in a known format)" in message
    assert "--skip-bad" not in message


def test_json(run, images, tmp_path, capsys):
    np.save(tmp_path / "own.npy", images[:2])
    main(
        ["explain", str(run), str(tmp_path / "own.npy"), "--objects", "2", "--json", "--out", str(tmp_path / "x.npz")]
    )
    rows = json.loads(capsys.readouterr().out)
    assert [row["image"] for row in rows] == ["0", "1"]
    with np.load(tmp_path / "x.npz") as stored:
        for row, capsules in zip(rows, stored["capsule"], strict=True):
            assert [found["capsule"] for found in row["objects"]] == capsules.tolist()


@pytest.mark.parametrize("scale", [1, 3])
def test_only_pictures_that_were_scaled_are_counted_at_several_sizes(scale, run, images, tmp_path, monkeypatch):
    side = scale * images.shape[1]
    folder = tmp_path / "pictures"
    folder.mkdir()
    for k in range(2):
        picture = Image.fromarray(images[k, ..., 0])
        picture.resize((side, side), Image.Resampling.NEAREST).save(folder / f"{k}.png")
    given = []

    def explained(self, pixels, k, compose, shift, fitted):
        given.append(fitted)
        raise InputError("that is all")

    monkeypatch.setattr(CapsulePoE, "explain", explained)
    with pytest.raises(SystemExit):
        main(["explain", str(run), str(folder)])
    assert given == [scale > 1]


def test_a_figure_has_a_row_for_each_object(run, images, tmp_path, capsys):
    np.save(tmp_path / "own.npy", images[:2])
    heights = []
    for objects in ("1", "3"):
        out = tmp_path / f"{objects}.PNG"
        main(["explain", str(run), str(tmp_path / "own.npy"), "--objects", objects, "--out", str(out)])
        assert capsys.readouterr().out.count("capsule") == 2 * int(objects)
        heights.append(Image.open(out).size[1])
    assert heights[1] > heights[0] + 2 * 84
