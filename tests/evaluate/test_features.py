"""The feature net and its cache."""

import numpy as np
import pytest

from capspoe.evaluate import features
from capspoe.evaluate.features import feature_net


def test_it_is_cached_and_a_damaged_file_is_replaced(data, tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path))
    monkeypatch.setattr(features, "MIN_STEPS", 40)
    pixels, labels = data.test[:2]
    train, test = (pixels[:200], labels[:200]), (pixels[200:], labels[200:])
    first = feature_net("a/digits", train, test)
    seen, classes = first.see(test[0])
    assert seen.shape == (len(test[0]), 128)
    assert first.info["test_accuracy"] == (classes == test[1]).mean() > 0.4
    with monkeypatch.context() as patch:
        patch.setattr(features, "minimize", lambda *_: pytest.fail("trained again"))
        second = feature_net("a/digits", train, test)
    assert second.info == first.info
    np.testing.assert_array_equal(second.see(test[0])[0], seen)
    (file,) = (tmp_path / "features").glob("digits-*.safetensors")
    file.write_bytes(file.read_bytes()[:-5] + b"wrong")
    assert feature_net("a/digits", train, test).info == first.info  # the same seed, the same net
    other = feature_net("a/digits", (pixels[20:220], labels[20:220]), test)
    assert other.info["sha256"] != first.info["sha256"]


def test_bytes_and_floats_are_the_same_images(data):
    some = data.test.pixels[:7]
    np.testing.assert_allclose(data.net.see(some)[0], data.net.see(some / np.float32(255))[0], rtol=1e-6)
    assert data.net.info["test_accuracy"] > 0.8
