"""The estimator under scikit-learn's own checks, and what it promises beyond them."""

import dataclasses
import inspect
import itertools
import pickle
import tempfile

import numpy as np
import pytest
import skops.io
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from skops.io.exceptions import UntrustedTypesFoundException

from capspoe.config import FIELDS, Config
from capspoe.errors import InputError
from capspoe.sklearn import SETTINGS, CapsulePoE

DIGITS = load_digits()
ROWS, PIXELS, LABELS = DIGITS.data[:400], DIGITS.images[:400], DIGITS.target[:400]


def small(min_steps=250, image_shape=None, **parameters):
    config = {"min_steps": min_steps, "prior_components": 1, "channels": 8, "autoencoder_epochs": 2}
    parameters = {"n_iter": 2, "batch_size": 32, "learning_rate": 0.01} | parameters
    return CapsulePoE(6, 4, image_shape=image_shape, config=config, **parameters)


@pytest.fixture(scope="module")
def of_features():
    return small().fit(ROWS)


@pytest.fixture(scope="module")
def of_images():
    return small().fit(PIXELS)


@parametrize_with_checks([CapsulePoE(3, 2, learning_rate=0.1, config={"min_steps": 60, "prior_components": 1})])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_parameters_are_settings_of_a_run():
    defaults = {name: parameter.default for name, parameter in inspect.signature(CapsulePoE).parameters.items()}
    for parameter, setting in SETTINGS.items():
        assert defaults[parameter] == FIELDS[setting].default, parameter
    model = CapsulePoE(7, 5, gate="none", n_iter=np.int64(3), random_state=4, config={"iterations": 1})
    changes = {"layers": "7x5", "gate": "none", "epochs": 3, "seed": 4, "iterations": 1, "recognition_steps": 0}
    assert dataclasses.asdict(model._config()) == dataclasses.asdict(Config(**changes))


@pytest.mark.parametrize("kind", ["of_features", "of_images"])
def test_shapes_and_scales(kind, request):
    model = request.getfixturevalue(kind)
    poses, on = model.transform(ROWS), model.predict_proba(ROWS)
    assert poses.shape == (400, 24)
    np.testing.assert_allclose(on.sum(1), 1, atol=1e-5)
    assert np.array_equal(model.predict(ROWS), on.argmax(1))
    assert np.array_equal(model.labels_, on.argmax(1))
    decoded = model.inverse_transform(poses)
    assert decoded.shape == (400, 64)
    assert 0 <= decoded.min() < 8 < decoded.max() <= 16
    deviations = [rows - rows.mean(0) for rows in (decoded, ROWS)]
    assert np.corrcoef(*map(np.ravel, deviations))[0, 1] > 0.3
    rows, capsule = model.sample(7, capsule=3)
    assert rows.shape == (7, 64)
    assert (capsule == 3).all()
    assert np.array_equal(rows, model.sample(7, capsule=3)[0])
    assert not np.array_equal(rows, model.sample(7, capsule=3, random_state=1)[0])


def test_clusters(of_images):
    assert adjusted_rand_score(LABELS, of_images.labels_) > 0.15
    assert np.array_equal(small(0).fit_predict(PIXELS[:64]), small(0).fit(PIXELS[:64]).labels_)


def test_flat_rows_with_a_shape_are_images(of_images):
    flat = small(image_shape=(8, 8)).fit(ROWS)
    assert flat.image_shape_ == of_images.image_shape_ == (8, 8, 1)
    np.testing.assert_array_equal(flat.transform(PIXELS), of_images.transform(PIXELS))
    np.testing.assert_array_equal(flat.transform(PIXELS[..., None]), of_images.transform(ROWS))


def test_inverse_transform_finds_the_capsule_that_is_on(of_features):
    network, (images,) = of_features.model_, of_features._blocks(ROWS[:50])
    low, high = of_features.range_
    encoded = network.encode(images)
    expected = low + network.decode(encoded.hidden, encoded.on).reshape(50, 64) * (high - low)
    found = of_features.inverse_transform(of_features.transform(ROWS[:50]))
    assert (np.abs(found - expected).max(1) < 1e-4).mean() > 0.75  # poses do not always tell which one is on
    alone = np.zeros((1, 6, 4), np.float32)
    alone[0, 2] = 0.01  # less evidence than the biases of others, but the only one that is not 0
    expected = low + network.decode(alone).reshape(1, 64) * (high - low)
    np.testing.assert_allclose(of_features.inverse_transform(alone.reshape(1, 24)), expected, atol=1e-4)
    with pytest.raises(InputError, match="24 columns, 4 for each of 6 capsules"):
        of_features.inverse_transform(np.zeros((2, 23)))


def test_real_rows_score_higher_than_shuffled_ones(of_features, of_images):
    real = DIGITS.data[400:600]
    shuffled = np.random.default_rng(0).permuted(real, axis=1)
    for model in (of_features, of_images):
        scores = np.concatenate([model.score_samples(real), model.score_samples(shuffled)])
        assert roc_auc_score(np.repeat([1, 0], 200), scores) > 0.9
    assert of_features.score(real) == pytest.approx(of_features.score_samples(real).mean())


def test_fit_starts_from_scratch():
    again, fresh = small(60).fit(ROWS[:200]).fit(ROWS[:100]), small(60).fit(ROWS[:100])
    assert np.array_equal(again.transform(ROWS), fresh.transform(ROWS))


def test_a_pickle_is_the_same_estimator(of_images):
    copy = pickle.loads(pickle.dumps(of_images))
    assert np.array_equal(copy.transform(PIXELS), of_images.transform(PIXELS))


@pytest.mark.parametrize("kind", ["of_images", "of_features"])
def test_skops_stores_it_without_pickle(kind, request, tmp_path):
    estimator = request.getfixturevalue(kind)
    X = PIXELS if kind == "of_images" else ROWS
    skops.io.dump(estimator, tmp_path / "model.skops")
    unknown = skops.io.get_untrusted_types(file=tmp_path / "model.skops")
    assert set(unknown) == {"capspoe.sklearn.CapsulePoE", "capspoe.data.scaling.Range"}
    with pytest.raises(UntrustedTypesFoundException):
        skops.io.load(tmp_path / "model.skops")
    there = skops.io.load(tmp_path / "model.skops", trusted=unknown)
    assert np.array_equal(there.transform(X), estimator.transform(X))
    assert np.array_equal(there.sample(3)[0], estimator.sample(3)[0])
    assert np.array_equal(there.labels_, estimator.labels_)
    assert there.get_params() == estimator.get_params()


def test_pipeline_grid_search_and_frames():
    iris = load_iris(as_frame=True)
    pipe = make_pipeline(small(60), LogisticRegression(max_iter=500)).set_output(transform="pandas")
    search = GridSearchCV(pipe, {"capsulepoe__learning_rate": np.array([0.01, 0.02])}, cv=2)
    search.fit(iris.data, iris.target)
    assert search.best_score_ > 0.75
    frame = search.best_estimator_[0].transform(iris.data)
    assert list(frame.columns[:5]) == [f"capsule{j}_{n}" for j, n in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0))]
    own = GridSearchCV(small(0), {"config": [{"iterations": 1, "min_steps": 0}]}, cv=2).fit(iris.data)
    assert np.isfinite(own.best_score_)


def test_fit_leaves_no_files_and_verbose_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    small(0).fit(PIXELS[:64])
    assert capsys.readouterr().err == ""
    small(0, verbose=1).fit(PIXELS[:64])
    assert "[CapsulePoE] capsules-0 4/4 reconstruction 0." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("X", "options", "expected"),
    [
        (PIXELS, {}, (0, 16)),
        (PIXELS / 16, {}, (0, 1)),
        (np.resize(PIXELS, (400, 9, 7, 6)).astype(np.uint8), {}, (0, 255)),
        (PIXELS - 20, {"value_range": (-20, 0)}, (-20, 0)),
        (ROWS[:, 10:13], {}, (ROWS[:, 10:13].min(0), ROWS[:, 10:13].max(0))),
    ],
)
def test_the_range_of_the_values(X, options, expected):
    model = small(0, **options).fit(X)
    for found, end in zip(model.range_, expected, strict=True):
        np.testing.assert_allclose(found, end)
    for block in model.range_.scaled(X.reshape(400, -1), model.model_.image):
        np.testing.assert_allclose(model.range_.original(block), X.reshape(400, -1), atol=1e-5)
    outside = np.full((1, X[0].size), 999.0)
    assert next(model.range_.scaled(outside, model.model_.image)).max() == 1


@pytest.mark.parametrize(
    ("options", "X", "message"),
    [
        ({"image_shape": (8, 9)}, ROWS[:9], "72 pixels, but X has 64"),
        ({"image_shape": (8, 9)}, PIXELS[:9], r"images of shape \(8, 8\)"),
        ({"image_shape": (4, 4, 2, 2)}, ROWS[:9], r"shape \(H, W\) or \(H, W, C\), not \(4, 4, 2, 2\)"),
        ({}, np.zeros((9, 4, 4)), "at least 5x5"),
        ({"n_components": 0}, ROWS[:9], "layers must look like"),
        ({"neurons": "grey"}, ROWS[:9], "neurons cannot be 'grey'; choose one of gaussian, binary"),
        ({"value_range": (1, 0)}, ROWS[:9], "must rise"),
        ({"value_range": "all"}, ROWS[:9], "'auto' or"),
        ({"config": {"seed": 3}}, ROWS[:9], "config cannot set 'seed'"),
        ({"config": {"layers": "3x3"}}, ROWS[:9], "config cannot set 'layers'"),
        ({"config": {"lr": 3}}, ROWS[:9], "no setting 'lr'"),
    ],
)
def test_what_does_not_fit_is_refused(options, X, message):
    with pytest.raises(InputError, match=message):
        CapsulePoE(**options).fit(X)


@pytest.fixture(scope="module")
def binary_rbm():
    """An RBM of a binary table: two patterns with noise."""
    rng = np.random.default_rng(0)
    patterns = np.array([[1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]])
    rows = patterns[rng.integers(0, 2, 400)] ^ (rng.random((400, 8)) < 0.05)
    settings = {"iterations": 1, "min_steps": 300, "gate_targets": "none", "threads": 1}
    model = CapsulePoE(1, 6, gate="none", neurons="binary", learning_rate=0.03, n_iter=2, config=settings)
    return model.fit(rows), rows, patterns


def test_a_binary_table_is_sampled_as_0_and_1(binary_rbm):
    model, rows, _ = binary_rbm
    drawn, _ = model.sample(50)
    assert set(np.unique(drawn)) <= {0, 1}
    step = model.gibbs(rows, random_state=1)
    assert step.shape == rows.shape
    assert set(np.unique(step)) == {0, 1}
    assert (step != model.gibbs(rows, random_state=2)).any()


def test_an_rbm_knows_its_likelihood(binary_rbm):
    """Against the sum over all rows of 0 and 1."""
    model, _, patterns = binary_rbm
    everything = np.array(list(itertools.product([0, 1], repeat=8)))
    total = np.logaddexp.reduce(model.score_samples(everything))
    assert total == pytest.approx(0, abs=0.1)
    assert model.score_samples(patterns).mean() > model.score_samples(everything).mean() + 2


def test_a_gibbs_step_stays_near_the_patterns(binary_rbm):
    model, _, patterns = binary_rbm
    distance = np.abs(model.gibbs(patterns.repeat(50, 0)) - patterns.repeat(50, 0)).mean()
    assert distance < 0.25
