"""Squares of photographs, and the baseline that they are compared with."""

import numpy as np
import pytest
from benchmarks.quality import photographs
from benchmarks.quality.photographs import groups_and_pca, jpegs, picture_name, psnr, write_squares
from PIL import Image


def test_no_test_square_is_of_a_picture_that_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(photographs, "SQUARES", 3)
    monkeypatch.setattr(photographs, "MIN_SIDE", 80)
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(6):  # each of one colour
        Image.new("RGB", (120, 90), (40 * number, 0, 0)).save(pictures / f"picture-{number}.jpg", quality=100)
    Image.new("RGB", (60, 60)).save(pictures / "thumbnail.jpg")
    write_squares(pictures, tmp_path / "squares")
    colours = {}
    for part in ("train", "test"):
        files = sorted((tmp_path / "squares" / part).iterdir())
        squares = [np.asarray(Image.open(file)) for file in files]
        assert {square.shape for square in squares} == {(64, 64, 3)}
        colours[part] = [round(square[..., 0].mean() / 40) for square in squares]
    assert sorted(colours["test"]) == [0, 0, 0, 5, 5, 5]
    assert sorted(set(colours["train"])) == [1, 2, 3, 4]


def test_a_picture_of_several_sizes_counts_once(tmp_path):
    for name in ("Flow/contents/images/5120x2880", "Flow/contents/images/1080x1920", "fog"):
        file = tmp_path / f"{name}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        wide = 1600 if "5120" in name else 800
        Image.new("RGB", (wide, 750)).save(file)
    files = {picture_name(path): path.name for path in jpegs(tmp_path)}
    assert files == {"Flow": "5120x2880.jpg", "fog": "fog.jpg"}


def test_psnr_of_known_errors():
    assert psnr(np.array([0.01, 0.001])) == pytest.approx(25)  # the mean of 20 and 30 dB


def test_the_baseline_is_exact_where_its_numbers_suffice():
    """Two clusters, each a plane: PCA with two numbers loses nothing, with one it does."""
    rng = np.random.default_rng(0)
    planes = []
    for centre in (0.2, 0.8):
        directions = 0.02 * rng.normal(size=(2, 12))
        planes.append(centre + rng.normal(size=(60, 2)) @ directions)
    train = np.concatenate([plane[:40] for plane in planes])
    test = np.concatenate([plane[40:] for plane in planes])
    assert groups_and_pca(train, test, groups=2, numbers=2).max() < 1e-12
    assert groups_and_pca(train, test, groups=2, numbers=1).min() > 1e-9
