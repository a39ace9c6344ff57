"""Trials of routing on small parts, clutter and new viewpoints."""

import numpy as np
import pytest
import torch
from benchmarks.quality import parts, shapes

from capspoe.config import preset
from capspoe.data import Images, load
from capspoe.model.pixels import Pixels


def test_a_shape_seen_from_the_front_is_its_silhouette():
    """The second shape is an L: four cubes in a row, and one above the first."""
    image = shapes.render(1, azimuth=0, elevation=0) > 0
    rows, columns = np.nonzero(image)
    width = 1 + columns.max() - columns.min()
    height = 1 + rows.max() - rows.min()
    assert abs(width - 4 * shapes.CUBE) < 1.5  # rounding adds a pixel or takes one
    assert abs(height - 2 * shapes.CUBE) < 1.5
    top = columns[rows == rows.min()]
    assert top.min() == columns.min()
    assert abs(len(top) - shapes.CUBE) < 1.5


def test_near_cubes_hide_far_ones():
    """From the end a row of five cubes is one square, of one shade."""
    image = shapes.render(0, azimuth=90, elevation=0)
    assert abs((image > 0).sum() - shapes.CUBE**2) <= shapes.CUBE
    assert len(np.unique(image)) == 2


def test_light_falls_from_above():
    image = shapes.render(0, azimuth=0, elevation=45).astype(float)
    rows = np.nonzero(image.max(1))[0]
    assert image[rows[1]].max() > 1.5 * image[rows[-2]].max()


def test_held_out_views_are_outside_those_of_training(monkeypatch):
    directions = []

    def render(shape, azimuth, elevation, size, shift):
        directions.append((abs(azimuth), elevation))
        return np.zeros((28, 28), np.uint8)

    monkeypatch.setattr(shapes, "render", render)
    shapes.draw_shapes(200, parts.SEEN, 0)
    seen = np.array(directions)
    for name, column in (("azimuth", 0), ("elevation", 1)):
        directions.clear()
        shapes.draw_shapes(200, parts.NEW_VIEWS[name], 0)
        held_out = np.array(directions)
        assert held_out[:, column].min() >= seen[:, column].max()
        other = 1 - column
        assert held_out[:, other].max() < 1.1 * seen[:, other].max()


def test_clutter_adds_to_the_digit_that_has_the_label():
    clean = load("digits", "train")
    clean = Images(clean.pixels[:50], clean.labels[:50])
    clutter = parts.cluttered(clean, 0)
    for pixels, label in zip(clutter.pixels, clutter.labels, strict=True):
        below = (clean.pixels <= pixels).all((1, 2, 3))
        assert label in clean.labels[below]
    assert any((pixels != clean.pixels).any((1, 2, 3)).all() for pixels in clutter.pixels)


@pytest.fixture(scope="module")
def trial():
    train = load("digits", "train")
    test = load("digits", "test")
    codec = Pixels(train.pixels.shape[1:], patch=2)
    return parts.Trial(parts.Setting(codec, train, {"clean": test, "noise": noise_like(test)}))


def noise_like(images):
    pixels = np.random.default_rng(0).permuted(images.pixels.reshape(len(images.pixels), -1), axis=1)
    return Images(pixels.reshape(images.pixels.shape), images.labels)


def test_a_trial_tells_digits_from_noise(trial):
    scores = trial.measure(preset("small").replace(epochs=4, min_steps=0), None)
    assert scores["clean"]["probe"] > 0.7
    assert scores["clean"]["gate"] > 0.5
    assert scores["clean"]["purity"] >= scores["clean"]["gate"]
    assert scores["noise"]["probe"] < 0.3


def test_the_codes_of_digits_tell_their_class(trial):
    scores = trial.probe_of_codes()
    assert scores["clean"]["probe"] > 0.85
    assert scores["noise"]["probe"] < 0.3


def test_variants_of_a_trial_share_codes_and_differ_by_their_weights(trial):
    config = preset("small")
    x = torch.from_numpy(trial.codes[:20]).float()
    own = trial.network(config).top
    shuffled = trial.network(config, "shuffled").top
    torch.testing.assert_close(own.w_JNMI, shuffled.w_JNMI)
    assert (own(x).c - shuffled(x).c).abs().max() > 1e-4


def test_a_summary_has_a_table_for_each_trial():
    rows = []
    for trial, tests in (("pixels", ("clean", "cluttered")), ("views", ("seen",))):
        for seed, probe in enumerate((0.8, 0.9)):
            scores = {test: {"probe": probe, "gate": 0.5, "purity": 0.6} for test in tests}
            rows.append({"trial": trial, "variant": "routing", "seed": seed} | scores)
    rows.append({"trial": "views", "variant": "negated", "seed": 0, "diverged": "at step 3"})
    rows.append({"trial": "views", "variant": parts.CODES, "seen": {"probe": 0.7}})
    lines = parts.summary(rows, "probe").splitlines()
    assert "| pixels, probe | seeds | clean | cluttered |" in lines
    assert "| routing | 2 | 0.850 ± 0.050 | 0.850 ± 0.050 |" in lines
    assert lines[-3] == "| routing | 2 | 0.850 ± 0.050 |"
    assert lines[-2] == "| negated | 1 | diverged |"
    assert lines[-1] == "| the codes themselves | 1 | 0.700 ± 0.000 |"
    assert parts.CODES not in parts.summary(rows, "purity")
