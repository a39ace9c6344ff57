"""`capspoe explain`: what it writes, and which polarity it expects of a file."""

import numpy as np

from capspoe.cli import main


def test_a_suffix_in_capitals_means_the_same(run, model, images, tmp_path):
    np.save(tmp_path / "own.npy", images[:2])
    out = tmp_path / "X.NPZ"
    main(["explain", str(run), str(tmp_path / "own.npy"), "--objects", "2", "--out", str(out)])
    expected = model.explain(images[:2], 2)
    with np.load(out) as stored:
        assert sorted(stored) == sorted(expected._fields)
        np.testing.assert_array_equal(stored["capsule"], expected.capsule)
