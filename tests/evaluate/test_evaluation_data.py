"""What models are evaluated on."""

import numpy as np
import pytest

import capspoe
from capspoe.errors import DataError
from capspoe.evaluate.data import encode_codes, in_memory


def test_codes_give_the_capsules_that_images_do(data):
    encoded = data.network.encode(data.test.pixels, posterior="energy")
    on, hidden = encode_codes(data.network, data.test.codes)
    np.testing.assert_allclose(on, encoded.on, atol=0.1)  # codes of 16 bits
    np.testing.assert_allclose(hidden, encoded.hidden, atol=0.1)
    direct = data.decode(data.test.codes[:9].reshape(9, -1) * 1.0)
    np.testing.assert_allclose(direct, data.network.reconstruct(data.test.pixels[:9], "autoencoder"), atol=0.01)
    assert np.array_equal(data.decode(np.full((1, data.test.codes[0].size), 7.0)),
                          data.decode(np.ones((1, data.test.codes[0].size))))  # fmt: skip


def test_of_large_data_evenly_spaced_images_are_used(data):
    rows = np.linspace(0, 255, 100).astype(int)
    for found, whole in zip(in_memory(data.train_set, 100), data.train[:2], strict=True):
        np.testing.assert_array_equal(found, whole[rows])


def test_the_feature_net_sees_all_training_images_as_the_network_takes_them(data):
    assert data.net.info["train_images"] == len(capspoe.data.load("digits", "train").pixels)
    assert data.net.info["classes"] == data.classes == 10
    expected = capspoe.data.load("digits", "test", size=12).pixels
    np.testing.assert_array_equal(data.test.pixels, expected)


@pytest.mark.parametrize(
    ("labels", "limit", "message"),
    [
        (np.arange(30) % 10, None, "1 test images are too few for 4 capsules; give 10 or more"),
        (np.arange(200) % 10, 15, "15 training images are too few"),
        (np.arange(200) * 100_000, None, r"labels go up to 19\d00000"),
    ],
)
def test_data_that_cannot_be_scored_is_refused(labelled, labels, limit, message):
    with pytest.raises(DataError, match=message):
        labelled(labels, limit=limit)


def test_one_class_is_like_no_labels(labelled):
    assert not labelled(np.zeros(300, np.int64)).labelled
    assert labelled(np.arange(300) // 150).labelled
    assert not labelled(np.arange(300) // 150, limit=100).labelled  # the first ones have one class
