"""`capspoe complete` and `capspoe score`."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from capspoe import CapsulePoE, data
from capspoe.cli import main


def test_regions_boxes_and_files_hide_the_same(run, model, images, tmp_path):
    np.save(tmp_path / "own.npy", images)
    mask = np.zeros((28, 28), np.uint8)
    mask[:, 14:] = 255
    Image.fromarray(mask.repeat(2, 0).repeat(2, 1)).save(tmp_path / "mask.png")
    found = []
    for hidden in ("right", "14,0,14,28", str(tmp_path / "mask.png")):
        out = tmp_path / "x.npz"
        main(["complete", str(run), str(tmp_path / "own.npy"), "--mask", hidden, "--count", "2", "--limit", "3",
              "--seed", "4", "--out", str(out)])  # fmt: skip
        with np.load(out) as stored:
            found.append(stored["images"])
    expected = model.complete(images[:3], "right", 2, seed=4).images
    for each in found:
        np.testing.assert_allclose(each, expected, atol=1e-5)
    main(["complete", str(run), str(tmp_path / "own.npy"), "--mask", "top", "--count", "1", "--limit", "2",
          "--out", str(tmp_path / "x.png")])  # fmt: skip
    assert Image.open(tmp_path / "x.png").size[1] > 2 * 84


def test_a_suffix_in_capitals_means_the_same(run, model, images, tmp_path):
    np.save(tmp_path / "own.npy", images[:2])
    out = tmp_path / "X.NPZ"
    main(["complete", str(run), str(tmp_path / "own.npy"), "--mask", "left", "--out", str(out)])
    with np.load(out) as stored:
        np.testing.assert_allclose(stored["images"], model.complete(images[:2], "left").images, atol=1e-5)


def test_a_mask_that_is_none(run, images, tmp_path, capsys):
    np.save(tmp_path / "own.npy", images)
    for wrong, word in (("middle", "left, right"), (str(tmp_path / "own.npy"), "not a readable image")):
        with pytest.raises(SystemExit):
            main(["complete", str(run), str(tmp_path / "own.npy"), "--mask", wrong, "--out", str(tmp_path / "x.png")])
        assert word in capsys.readouterr().err


def test_scores_put_the_odd_ones_first(run, model, images, tmp_path, capsys):
    odd = np.random.default_rng(0).integers(0, 256, (2, *images.shape[1:]), np.uint8)
    np.save(tmp_path / "own.npy", np.concatenate([images, odd]))
    main(["score", str(run), str(tmp_path / "own.npy"), "--out", str(tmp_path / "x.csv")])
    assert "log Z between" in capsys.readouterr().out
    table = pd.read_csv(tmp_path / "x.csv")
    assert list(table) == ["file", "score", "code", "pixels", "capsule", "typicality", "error"]
    assert set(table.file[:2]) == {len(images), len(images) + 1}
    assert (table.typicality[:2] == 0).all()
    own = table[table.file < len(images)].sort_values("file")
    np.testing.assert_allclose(own.score, model.score(images).total, atol=0.1)
    assert 0.1 < own.typicality.mean() < 0.95
    main(["score", str(run), str(tmp_path / "own.npy")])
    assert len(capsys.readouterr().out.splitlines()) == 2 + 10 + 1


def test_a_mixture_on_pixels_has_the_likelihood_of_images(tmp_path, capsys):
    """Training logs it, the report shows it, and `score` says the same."""
    folder = tmp_path / "run"
    main(["train", "digits", "--codec", "drawn-pixels", "--layers", "4x3", "--iterations", "1", "--start", "mixture",
          "--limit", "400", "--min-steps", "800", "--out", str(folder)])  # fmt: skip
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    bounds = [(line["log_likelihood_lower"], line["log_likelihood_upper"]) for line in lines]
    model = CapsulePoE.load(folder)
    assert model.recognition is None
    images = data.load("digits", "train").pixels[:400]
    scores = model.score(images).code
    expected = scores.mean()
    # Training scores every fourth image. The last line has few steps.
    assert np.mean(bounds[-2]) == pytest.approx(scores[::4].mean(), abs=1.5)
    capsys.readouterr()
    np.save(tmp_path / "own.npy", images)
    main(["score", str(folder), str(tmp_path / "own.npy")])
    said = re.search(r"log-likelihood of an image: (\S+) ± (\S+) nats, the mean of 400", capsys.readouterr().out)
    assert float(said[1]) == pytest.approx(expected, abs=0.1)
    main(["score", str(folder), "--split", "test", "--out", str(tmp_path / "x.csv")])
    # Hardly any image is as odd as another.
    assert pd.read_csv(tmp_path / "x.csv").typicality.nunique() > 200
    main(["report", str(folder)])
    assert "log-likelihood of an image, in nats" in (folder / "report.html").read_text()
