"""`capspoe explain`: what it writes, and which polarity it expects of a file."""

import numpy as np
from PIL import Image

from capspoe.cli import main
from capspoe.commands.explain import open_images
from capspoe.infer.polarity import Polarity


def test_a_suffix_in_capitals_means_the_same(run, model, images, tmp_path):
    np.save(tmp_path / "own.npy", images[:2])
    out = tmp_path / "X.NPZ"
    main(["explain", str(run), str(tmp_path / "own.npy"), "--objects", "2", "--out", str(out)])
    expected = model.explain(images[:2], 2)
    with np.load(out) as stored:
        assert sorted(stored) == sorted(expected._fields)
        np.testing.assert_array_equal(stored["capsule"], expected.capsule)


def test_a_picture_takes_the_polarity_of_the_network(model, images, tmp_path):
    assert not Polarity.of_network(model).dark
    light = images[0, :, :, 0]
    for name, picture in (("light.png", light), ("dark.png", 255 - light)):
        Image.fromarray(picture).save(tmp_path / name)
        np.testing.assert_array_equal(open_images(model, str(tmp_path / name), 1)[0, :, :, 0], light)


def test_a_figure_has_a_row_for_each_object(run, images, tmp_path, capsys):
    np.save(tmp_path / "own.npy", images[:2])
    heights = []
    for objects in ("1", "3"):
        out = tmp_path / f"{objects}.PNG"
        main(["explain", str(run), str(tmp_path / "own.npy"), "--objects", objects, "--out", str(out)])
        assert capsys.readouterr().out.count("capsule") == 2 * int(objects)
        heights.append(Image.open(out).size[1])
    assert heights[1] > heights[0] + 2 * 84
