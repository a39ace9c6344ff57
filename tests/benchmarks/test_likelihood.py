"""Likelihoods of the benchmark against every state enumerated."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.pages import likelihood_figure
from benchmarks.pages.results import likelihood_choices, likelihood_parts
from benchmarks.quality import likelihood

from capspoe.infer.likelihood import log_integrals
from capspoe.model.layer import CapsuleLayer
from capspoe.model.prior import CapsulePrior
from tiny import F64, all_visible


@torch.no_grad()
def test_the_gates_bias_makes_capsules_as_probable_as_their_shares():
    layer = CapsuleLayer((3, 2), (2, 2), iterations=1, initial_std=0.7, seed=1, dtype=F64)
    layer.mu.fill_(0.4)
    layer.a.normal_(generator=torch.Generator().manual_seed(0))
    low, high = log_integrals(layer, CapsulePrior(2, 2, 1).double())
    likelihood.set_shares(layer, torch.tensor([0.8, 0.2], dtype=F64), (low + high) / 2)
    states = all_visible(layer)
    evidence = layer.log_evidence(layer.preactivation(states, None), states) + layer.d
    share = torch.softmax(torch.logsumexp(evidence, 0), 0)
    torch.testing.assert_close(share, torch.tensor([0.8, 0.2], dtype=F64), atol=0.02, rtol=0)


def test_a_mixture_of_bernoullis_sums_to_one(monkeypatch):
    """Over all images of six pixels."""
    states = np.array(list(itertools.product([0, 255], repeat=6)), np.uint8).reshape(-1, 6, 1, 1)
    images = likelihood.Images(np.repeat(states[::3], 5, 0), states)
    result = {}

    def keep(given, lower, upper=None):
        result["total"] = float(torch.logsumexp(lower(given.binary("test")).double(), 0))

    monkeypatch.setattr(likelihood, "bounds", keep)
    likelihood.bernoullis(3, images, seed=0)
    assert result["total"] == pytest.approx(0, abs=1e-4)


ROW = {"seed": 0, "binarisation": "drawn", "images": 20_000, "train": [-90.0, -89.8], "seconds": 12}


def test_the_table_has_the_best_model_first():
    parts = likelihood_parts(
        [
            ROW | {"model": "bernoullis-20", "test": [-150.0, -150.0]},
            ROW | {"model": "20x16", "test": [-100.1, -99.9]},
            ROW | {"model": "20x16", "test": [-60.0, -60.0], "binarisation": "threshold"},
        ]
    )
    first, second = parts["likelihood"].splitlines()[2:]
    assert first == "| capspoe, 20x16, start alone | 0 | -89.9 | -100.0 | 0.20 | 12 |"
    assert second.startswith("| mixture of 20 Bernoullis | 0 |")
    assert parts["likelihood images"] == "20,000"


def test_the_curve_has_the_middles_of_both_bounds():
    rows = [
        ROW | {"model": "100x16", "test": [-98.2, -98.0]},
        ROW | {"model": "20x16", "test": [-105.1, -104.9]},
        ROW | {"model": "20x16", "test": [-104.1, -103.9], "seed": 1},
        ROW | {"model": "20x16-chains", "test": [-95.0, -95.0]},
        ROW | {"model": "bernoullis-20", "test": [-150.0, -150.0]},
    ]
    axis = likelihood_figure.draw(rows).axes[0]
    test_line, train_line, chains, _, other = axis.lines
    assert list(test_line.get_xdata()) == list(train_line.get_xdata()) == [20, 100]
    assert list(test_line.get_ydata()) == pytest.approx([-104.5, -98.1])
    assert list(train_line.get_ydata()) == pytest.approx([-89.9, -89.9])
    assert (list(chains.get_xdata()), list(chains.get_ydata())) == ([20], [-95.0])
    assert list(other.get_ydata()) == [-150.0, -150.0]


def test_choices_name_the_settings_that_a_model_has():
    rows = [
        ROW | {"model": "bernoulli-rbm", "test": [-122.0, -120.0], "epochs": 10, "learning_rate": 0.01},
        ROW | {"model": "20x16", "test": [-111.0, -111.0], "ridge": 0.02, "temperature": 20.0, "rounds": 1},
    ]
    capsules, rbm = likelihood_choices(rows)["likelihood choices"].splitlines()[2:]
    assert capsules.startswith("| capspoe, 20x16, start alone | ridge 0.02, temperature 20, rounds 1 | -89.9 |")
    assert "| epochs 10, learning rate 0.01 | -89.9 | -121.0 | 2.00 |" in rbm


def test_pixels_are_drawn_once_with_their_brightness(monkeypatch):
    pixels = np.full((2000, 28, 28, 1), 51, np.uint8)  # a fifth
    monkeypatch.setattr(likelihood.data, "load", lambda name, split: SimpleNamespace(pixels=pixels))
    images = likelihood.Images.load(1000, held_out=500, threshold=False)
    assert (len(images.train), len(images.test)) == (1000, 500)
    assert set(np.unique(images.train)) == {0, 255}
    assert (images.train == 255).mean() == pytest.approx(0.2, abs=0.005)
    again = likelihood.Images.load(1000, held_out=500, threshold=False)
    assert np.array_equal(images.test, again.test)
    assert not likelihood.Images.load(1000, held_out=0, threshold=True).train.any()


def test_another_setting_is_another_row():
    row = ROW | {"model": "20x16", "test": [-100.1, -99.9], "temperature": 1.0}
    assert likelihood.same_run(row, row | {"test": [0.0, 0.0], "seconds": 5})
    assert not likelihood.same_run(row, row | {"temperature": 20.0})
