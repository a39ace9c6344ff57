"""The estimator under scikit-learn's own checks, and what it says beyond them."""

import dataclasses
import inspect
import pickle
import tempfile

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from capspoe.config import AutoencoderConfig, CapsuleConfig, TrainingConfig
from capspoe.errors import InputError
from capspoe.pseudolikelihood import pseudo_likelihood
from capspoe.sklearn import LEFT_OUT, CapsulePoE
from tiny import all_visible, some_routing, tiny_layer

SMALL = {
    "layers": "6x4",
    "least_steps": 400,
    "epochs": 2,
    "batch": 32,
    "components": 1,
    "channels": 8,
    "lr": 0.01,
}
DIGITS = load_digits()
PIXELS, LABELS = DIGITS.images[:400], DIGITS.target[:400]


@pytest.fixture(scope="module")
def of_features():
    return CapsulePoE(**SMALL).fit(DIGITS.data[:400])


@pytest.fixture(scope="module")
def of_images():
    return CapsulePoE(**SMALL).fit(PIXELS)


@parametrize_with_checks([CapsulePoE(layers="3x2", epochs=3, least_steps=0, components=1)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_every_setting_of_a_run_is_a_parameter_with_its_default():
    parameters = inspect.signature(CapsulePoE).parameters
    for part in (AutoencoderConfig, CapsuleConfig, TrainingConfig):
        for field in dataclasses.fields(part):
            if field.name in LEFT_OUT:
                continue
            assert field.name in parameters, f"capspoe.sklearn.CapsulePoE has no parameter {field.name!r}"
            assert parameters[field.name].default == field.default, field.name
    settings = CapsulePoE(l2=0.5, channels=16, sharpness=0.3)._config()
    assert (settings.training.l2, settings.autoencoder.channels, settings.capsules.sharpness) == (
        0.5,
        16,
        0.3,
    )


@pytest.mark.parametrize("kind", ["of_features", "of_images"])
def test_shapes_and_scales(kind, request):
    model = request.getfixturevalue(kind)
    numbers = model.transform(DIGITS.data[:400])
    assert numbers.shape == (400, 24)
    on = model.predict_proba(DIGITS.data[:400])
    np.testing.assert_allclose(on.sum(1), 1, atol=1e-5)
    assert np.array_equal(model.predict(DIGITS.data[:400]), on.argmax(1))
    assert len(np.unique(on.argmax(1))) >= 4
    painted = model.inverse_transform(numbers)
    assert painted.shape == (400, 64)
    assert painted.min() >= 0
    assert 8 < painted.max() <= 16
    deviations = [rows - rows.mean(0) for rows in (painted, DIGITS.data[:400])]
    assert np.corrcoef(*map(np.ravel, deviations))[0, 1] > 0.3
    rows, capsule = model.sample(7, capsule=3)
    assert rows.shape == (7, 64)
    assert (capsule == 3).all()
    assert not np.array_equal(rows, model.sample(7, capsule=3, random_state=1)[0])


def test_flat_rows_with_a_shape_are_the_images_themselves(of_images):
    flat = CapsulePoE(image_shape=(8, 8), **SMALL).fit(DIGITS.data[:400])
    assert flat.image_shape_ == of_images.image_shape_ == (8, 8, 1)
    np.testing.assert_array_equal(flat.transform(PIXELS), of_images.transform(PIXELS))
    np.testing.assert_array_equal(flat.transform(PIXELS[..., None]), of_images.transform(DIGITS.data[:400]))


def test_inverse_transform_paints_what_reconstruct_paints(of_features):
    """Which capsule is on is found from the numbers alone."""
    rows = DIGITS.data[:50]
    network, (images,) = of_features.model_, of_features._blocks(rows)
    encoded = network.encode(images)
    expected = network.decode(encoded.hidden, encoded.on).reshape(50, 64)
    low, high = of_features.range_
    painted = of_features.inverse_transform(of_features.transform(rows))
    np.testing.assert_allclose(painted, low + expected * (high - low), atol=1e-4)
    alone = np.zeros((1, 6, 4), np.float32)
    alone[0, 2] = 0.01
    of_two = network.decode(alone).reshape(1, 64)
    np.testing.assert_allclose(
        of_features.inverse_transform(alone.reshape(1, -1)), low + of_two * (high - low), atol=1e-4
    )


def test_real_rows_score_higher_than_shuffled_ones(of_features, of_images):
    shuffled = np.random.default_rng(0).permuted(DIGITS.data[400:600], axis=1)
    for model in (of_features, of_images):
        scores = np.concatenate([model.score_samples(DIGITS.data[400:600]), model.score_samples(shuffled)])
        assert roc_auc_score(np.repeat([1, 0], 200), scores) > 0.9
    assert of_features.score(shuffled) == pytest.approx(of_features.score_samples(shuffled).mean())


@pytest.mark.parametrize("routed", [False, True])
@pytest.mark.parametrize("gate", ["winner", "none"])
@pytest.mark.parametrize("neurons", ["binary", "gaussian"])
def test_pseudo_likelihood_against_flips_of_every_unit(neurons, gate, routed):
    layer = tiny_layer(gate, neurons)
    x = all_visible(layer)
    c = some_routing(layer).expand(len(x), -1, -1) if routed else None
    total = torch.zeros(len(x), dtype=torch.float64)
    for i in range(3):
        for m in range(2):
            flipped = x.clone()
            flipped[:, i, m] = 1 - x[:, i, m]
            change = layer.free_energy(flipped, c) - layer.free_energy(x, c)
            total += torch.nn.functional.logsigmoid(change)
    torch.testing.assert_close(pseudo_likelihood(layer, x, c), total.detach())


def test_blocks_make_no_difference(of_images, monkeypatch):
    rows = DIGITS.data[:50]
    calls = (
        lambda: of_images.transform(rows),
        lambda: of_images.predict_proba(rows),
        lambda: of_images.score_samples(rows),
        lambda: of_images.inverse_transform(of_images.transform(rows)),
        lambda: of_images._for_training(rows),
    )
    whole = [call() for call in calls]
    monkeypatch.setattr("capspoe.scaling.BLOCK", 7)
    monkeypatch.setattr("capspoe.sklearn.BLOCK", 7)
    for call, expected in zip(calls, whole, strict=True):
        np.testing.assert_allclose(call(), expected, atol=1e-3)


def test_partial_fit_learns_bit_by_bit():
    model = CapsulePoE(**{**SMALL, "least_steps": 60})
    for _ in range(3):
        for start in range(0, 400, 100):
            model.partial_fit(DIGITS.data[start : start + 100])
    before = model.score(DIGITS.data[400:500])
    assert before > CapsulePoE(**SMALL).partial_fit(DIGITS.data[:100]).score(DIGITS.data[400:500])
    assert len(np.unique(model.predict(DIGITS.data[:400]))) >= 3
    assert model.sample(5)[0].std() > 1
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(DIGITS.data[:, :10])
    anew, fresh = model.fit(DIGITS.data[:100]), clone(model).fit(DIGITS.data[:100])
    assert np.array_equal(anew.transform(PIXELS), fresh.transform(PIXELS))


def test_partial_fit_carries_a_trained_network_on(of_images):
    model = pickle.loads(pickle.dumps(of_images))
    before = model.transform(PIXELS)
    model.partial_fit(PIXELS[:64])
    after = model.transform(PIXELS)
    assert not np.array_equal(before, after)
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.8
    again = pickle.loads(pickle.dumps(model))
    further = [each.partial_fit(PIXELS[64:96]).transform(PIXELS) for each in (again, model)]
    assert np.array_equal(*further)


def test_pipeline_grid_search_and_frames():
    iris = load_iris(as_frame=True)
    pipe = make_pipeline(CapsulePoE(**{**SMALL, "least_steps": 60}), LogisticRegression(max_iter=500))
    pipe.set_output(transform="pandas")
    search = GridSearchCV(pipe, {"capsulepoe__lr": np.array([0.01, 0.02])}, cv=2)
    search.fit(iris.data, iris.target)
    assert search.best_score_ > 0.75
    frame = search.best_estimator_[0].transform(iris.data)
    assert list(frame.columns[:2]) == ["capsule0_0", "capsule0_1"]
    own = GridSearchCV(CapsulePoE(**{**SMALL, "least_steps": 0}), {"iterations": [1, 3]}, cv=2).fit(iris.data)
    assert np.isfinite(own.best_score_)


def test_fit_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    CapsulePoE(**{**SMALL, "least_steps": 0}).fit(PIXELS[:64])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("channels", [1, 3, 4, 6])
def test_colours(channels):
    images = np.random.default_rng(0).integers(0, 256, (40, 9, 7, channels), dtype=np.uint8)
    model = CapsulePoE(**{**SMALL, "least_steps": 0}).fit(images)
    assert model.range_ == (0, 255)
    assert model.sample(3)[0].shape == (3, 9 * 7 * channels)
    assert model.transform(images).shape == (40, 24)


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"image_shape": (8, 9)}, DIGITS.data[:9], "72 pixels, but X has 64"),
        ({"image_shape": (8, 9)}, PIXELS[:9], r"images of shape \(8, 8\)"),
        (
            {"image_shape": (4, 4, 2, 2)},
            DIGITS.data[:9],
            r"shape \(H, W\) or \(H, W, C\), not \(4, 4, 2, 2\)",
        ),
        ({}, np.zeros((9, 4, 4)), "at least 5x5"),
        ({"layers": "3"}, DIGITS.data[:9], "layers must look like"),
        ({"value_range": (1, 0)}, DIGITS.data[:9], "must rise"),
        ({"value_range": "all"}, DIGITS.data[:9], "'auto' or"),
    ],
)
def test_what_does_not_fit_is_said(options, X, message):
    with pytest.raises(InputError, match=message):
        CapsulePoE(**options).fit(X)


def test_numbers_of_another_network_are_refused(of_features):
    with pytest.raises(InputError, match="24 columns, 4 for each of 6 capsules"):
        of_features.inverse_transform(np.zeros((2, 23)))
