"""What every data set can do, and how it is opened."""

import hashlib
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from capspoe.data import (
    ArrayDataset,
    Prepare,
    SequenceDataset,
    datasets,
    evenly_spaced,
    from_array,
    load,
    open_dataset,
    open_for,
    workers_for,
)
from capspoe.errors import DataError, InputError


@pytest.fixture
def folder(tmp_path):
    """23 images of 6x6 pixels with the values 0, 10, 20, ..."""
    for k in range(23):
        Image.new("L", (6, 6), 10 * k).save(tmp_path / f"{k:02}.png")
    return tmp_path


@pytest.fixture
def dataset(folder):
    return open_dataset(folder, "all")


def values(pixels):
    return (pixels[:, 0, 0, 0] // 10).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order(dataset, workers):
    order = np.random.default_rng(3).permutation(23)
    batches = list(dataset.batches(5, order, workers=workers))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert values(np.concatenate(batches)) == order.tolist()
    assert values(dataset.images(workers).pixels) == list(range(23))


def test_workers_report_bad_images_too(folder, dataset):
    (folder / "07.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"1 of 5 images cannot be read: 07\.png"):
        list(dataset.batches(5, workers=1))


def test_only_a_few_batches_are_decoded_ahead(dataset, monkeypatch):
    read, plain = [], dataset.read
    monkeypatch.setattr(dataset, "read", lambda indices: read.append(indices) or plain(indices))
    batches = dataset.batches(1, workers=1)
    assert values(np.concatenate([next(batches) for _ in range(3)])) == [0, 1, 2]
    batches.close()
    assert len(read) <= 3 + datasets.AHEAD


def test_workers_are_only_for_many_files(dataset, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert workers_for(dataset) == 0
    many = SequenceDataset(np.zeros((2000, 4, 4), np.uint8), decodes=True)
    assert workers_for(many) == 3
    assert workers_for(many.in_memory()) == workers_for(many.first(1999)) == 0


def test_a_copy_in_memory_is_the_same(dataset):
    order = [22, 0, 5, 5]
    copy = dataset.in_memory()
    assert values(copy.batch(order)) == order
    assert copy.names([22, 0]) == ["22.png", "00.png"]
    assert copy.shape == dataset.shape == (6, 6, 1)
    assert copy.batch([]).shape == (0, 6, 6, 1)
    assert copy.fingerprint() == dataset.fingerprint()
    assert dataset.nbytes == 23 * 36


def test_evenly_spaced():
    assert evenly_spaced(23, 12).tolist() == list(range(0, 23, 2))
    assert evenly_spaced(3, 12).tolist() == [0, 1, 2]


def test_subsets(folder, dataset):
    (folder / "04.png").write_bytes(b"")
    spread = dataset.spread(12)
    assert spread.names([1, 2]) == ["02.png", "04.png"]
    assert spread.spread(99) is spread
    assert values(spread.batch([3, 1])) == [6, 2]
    with pytest.raises(DataError, match=r"04\.png"):
        spread.images()
    with pytest.warns(UserWarning, match=r"skipped: 1 of 4 images cannot be read: 04\.png"):
        readable = spread.first(4).without_failures()
    assert values(readable.images().pixels) == [0, 2, 6]
    labelled = ArrayDataset(np.zeros((5, 2, 2, 1), np.uint8), np.arange(5))
    assert labelled.spread(3).labels.tolist() == [0, 2, 4]
    assert labelled.names([3]) == ["3"]


def test_fingerprint(dataset, folder, monkeypatch):
    """It is a hash of count, shape and pixels; of 256 images if there are too many or they are verified."""
    head = json.dumps([23, [6, 6, 1]]).encode()
    assert dataset.fingerprint() == hashlib.sha256(head + dataset.images().pixels.tobytes()).hexdigest()
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 2, 2, 1), np.uint8)
    changed = pixels.copy()
    changed[1] ^= 1
    assert ArrayDataset(pixels).fingerprint() != ArrayDataset(changed).fingerprint()
    monkeypatch.setattr(datasets, "MAX_HASHED", 3999)
    head = json.dumps([1000, [2, 2, 1]]).encode()
    sampled = hashlib.sha256(head + pixels[np.linspace(0, 999, 256).astype(int)].tobytes()).hexdigest()
    assert ArrayDataset(pixels).fingerprint() == ArrayDataset(changed).fingerprint() == sampled


def test_fingerprint_of_a_catalogue_data_set_is_sampled():
    digits = open_dataset("digits", "all", offline=True)
    rows = evenly_spaced(1797, 256)
    head = json.dumps([1797, [28, 28, 1]]).encode()
    expected = hashlib.sha256(head + digits.batch(rows).tobytes()).hexdigest()
    assert digits.fingerprint() == digits.in_memory().fingerprint() == expected
    assert expected.startswith("6c4ebae2660c59b9")


def test_a_sequence_gives_its_items():
    items = [(np.full((5, 4), k, np.uint8), k) for k in range(3)]
    dataset = SequenceDataset(items, Prepare.of(2, None, "rgb"))
    assert dataset.shape == (2, 2, 3)
    assert dataset.batch([2, 0])[:, 1, 1, 2].tolist() == [2, 0]
    assert dataset.names([2]) == ["2"]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "there are no images"),
        (iter([]), "images of type list_iterator: give a path, or an object with"),
        ([np.zeros((2, 2), int)], r"type int64; give arrays \(H, W\), \(H, W, C\) or \(C, H, W\), uint8 or float"),
        ([np.full((2, 2), 2.0)], r"values from 2 to 2; floats must be in \[0, 1\]"),
        ([np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8)], "image 1 has another shape than image 0"),
    ],
)
def test_sequences_that_are_not_images_are_refused(items, message):
    with pytest.raises((InputError, DataError), match=message):
        SequenceDataset(items).images()


@pytest.mark.parametrize("indices", [[-1], [23], [0.5], [[1]], ["a"]])
def test_wrong_indices_are_refused(dataset, indices):
    for call in (dataset.batch, dataset.names):
        with pytest.raises(InputError, match="indices"):
            call(indices)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": (28, 28, 3)}, "one number, or height and width"),
        ({"size": 2.5}, "size is 2.5"),
        ({"size": True}, "size is True"),
        ({"size": 10**6}, "give 1 to 4096 pixels"),
        ({"crop": 7}, "crop 7x7 is larger than the images"),
        ({"colour": "blue"}, "choose grey, rgb or None"),
        ({"split": "valid"}, "choose train, test or all"),
        ({"skip_bad": True, "workers": -1}, "workers is -1"),
    ],
)
def test_wrong_options_are_refused(folder, options, message):
    with pytest.raises(InputError, match=message):
        load(folder, **options)


def test_wrong_batch_sizes_are_refused(dataset):
    with pytest.raises(InputError, match="it must be at least 1"):
        list(dataset.batches(0))


@pytest.mark.parametrize("name", ["minst", "", "no/such/folder", "~nobody-of-that-name/x", "a\0b"])
def test_unknown_names_are_refused(name):
    with pytest.raises(InputError, match=r"is neither a data set \(mnist, .*\) nor a file or folder"):
        load(name)


def test_paths_that_cannot_be_read_are_refused(folder):
    with pytest.raises(DataError, match=r"xxx: cannot be read \(.*long\)"):
        load("x" * 5000)
    (folder / "notes.txt").write_text("no image")
    with pytest.raises(DataError, match=r"not an image.*give an image file, a folder of images, an \.npy"):
        load(folder / "notes.txt")


def test_an_image_file_is_a_data_set_of_one(folder):
    everything = open_dataset(folder, "all")
    row = everything.file_names.index("00.png")
    pixels, labels = load(folder / "00.png")
    assert (pixels[0] == everything.batch([row])[0]).all()
    assert labels is None


def test_floats_and_channels_first_are_understood():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    floats = torch.from_numpy(pixels.transpose(0, 3, 1, 2) / np.float32(255))
    items = [(image.requires_grad_(), 7) for image in floats]  # as PyTorch's data sets have them
    assert (SequenceDataset(items).batch(np.arange(4)) == pixels).all()
    from_array_of_floats = from_array(floats.numpy(), Prepare())
    assert (from_array_of_floats.batch(np.arange(4)) == pixels).all()
    assert from_array_of_floats.understood == "4 images of 8x8, RGB, float32 in [0, 1], read as (n, C, H, W)"


@pytest.mark.parametrize(
    ("config", "image", "images", "shape"),
    [
        ({}, (6, 6, 1), False, (6, 6, 1)),
        ({}, (10, 8, 3), True, (10, 8, 3)),
        ({"size": 9}, (9, 9, 1), False, (9, 9, 1)),
        ({"crop": 4}, (4, 4, 1), False, (4, 4, 1)),
        ({"size": 9, "crop": 4}, (4, 4, 3), True, (4, 4, 3)),
    ],
)
def test_images_are_opened_as_a_network_expects_them(folder, config, image, images, shape):
    settings = {
        "data": "no such data" if images else str(folder),
        "size": None,
        "crop": None,
        "skip_bad": False,
    }
    opened = open_for(SimpleNamespace(**settings | config), image, str(folder) if images else None, "all")
    assert opened.shape == shape
    whole = load(folder, "all", size=config.get("size") or (None if config else image[:2]), colour="grey").pixels
    top = (whole.shape[1] - image[0]) // 2
    assert np.array_equal(opened.images().pixels[..., :1], whole[:, top:, top:][:, : image[0], : image[1]])


def test_opening_for_a_network_does_not_download_and_may_skip_bad_images(cache, folder):
    config = SimpleNamespace(data="mnist", size=None, crop=None, skip_bad=True)
    with pytest.raises(DataError, match="has not been downloaded"):
        open_for(config, (28, 28, 1))
    (folder / "04.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="skipped: 1 of 23"):
        assert len(open_for(config, (6, 6, 1), str(folder), "all")) == 22
