"""`capspoe sample`."""

import numpy as np
import pytest
from PIL import Image

from capspoe.cli import main
from capspoe.run.pictures import sample_grid


def samples(run, out, *options):
    main(["sample", str(run), "--out", str(out), *options])
    with np.load(out) as stored:
        return stored["images"], stored["capsule"]


def test_arrays_of_every_capsule_and_of_one(run, model, tmp_path, capsys):
    every, capsules = samples(run, tmp_path / "x.npz", "--each", "300")
    assert every.shape == (4, 300, 28, 28, 1)
    assert every.dtype == np.float32
    assert list(capsules) == [0, 1, 2, 3]
    assert capsys.readouterr().out == f"{tmp_path / 'x.npz'}\n"
    one, capsules = samples(run, tmp_path / "y.npz", "--each", "5", "--capsule", "2")
    np.testing.assert_allclose(one[0], every[2, :5], atol=1e-6)
    assert list(capsules) == [2]
    np.testing.assert_allclose(sample_grid(model).swapaxes(0, 1), every[:, :4], atol=1e-6)


def test_a_count_is_the_number_in_all_as_in_python(run, model, tmp_path):
    images, capsules = samples(run, tmp_path / "x.npz", "--count", "300", "--seed", "2")
    expected = model.sample(300, seed=2)
    np.testing.assert_allclose(images, expected.images, atol=1e-6)
    assert np.array_equal(capsules, expected.capsule)
    one, capsules = samples(run, tmp_path / "x.npz", "--count", "3", "--capsule", "1")
    np.testing.assert_allclose(one, model.sample(3, 1).images, atol=1e-6)
    assert list(capsules) == [1, 1, 1]
    main(["sample", str(run), "--count", "23", "--out", str(tmp_path / "x.png")])
    assert Image.open(tmp_path / "x.png").size == (2 * (20 * 30 - 2), 2 * (2 * 30 - 2))


def test_options_are_those_of_the_model(run, model, tmp_path):
    options = ["--prior", "standard", "--gibbs", "1", "--seed", "5", "--each", "2"]
    found, _ = samples(run, tmp_path / "x.npz", *options)
    expected = model.sample(8, [0, 1, 2, 3], "standard", 1, 5).images.reshape(2, 4, 28, 28, 1)
    np.testing.assert_allclose(found, expected.swapaxes(0, 1), atol=1e-5)
    narrow, _ = samples(run, tmp_path / "x.npz", "--prior-scale", "0.1")
    assert not np.allclose(narrow, samples(run, tmp_path / "x.npz")[0])


def test_a_picture_has_a_column_for_each_capsule(run, tmp_path):
    main(["sample", str(run), "--each", "3", "--out", str(tmp_path / "x.png")])
    assert Image.open(tmp_path / "x.png").size == (2 * (4 * 30 - 2), 2 * (3 * 30 - 2))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("x.npz", ["--capsule", "4"], "capsule must be below 4"),
        ("x.npz", ["--count", "0"], "count must be"),
        ("x.npz", ["--each", "0"], "each must be"),
        ("x.npz", ["--each", "2", "--count", "2"], "choose --count"),
        ("x.png", ["--each", "5001"], "at most 20,000 images"),
        ("x.png", ["--count", "20001"], "at most 20,000 images"),
    ],
)
def test_wrong_requests_write_nothing(run, tmp_path, name, options, message, capsys):
    with pytest.raises(SystemExit):
        main(["sample", str(run), "--out", str(tmp_path / name), *options])
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
