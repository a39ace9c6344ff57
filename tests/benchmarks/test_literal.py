"""Readings of the paper: the update by automatic differentiation is the program's where both exist."""

import pytest
import torch
from benchmarks.quality import literal
from benchmarks.quality.readings import READING, Differentiated, ReadingLayer, train, update

from capspoe import data
from capspoe.model.noise import Noise
from capspoe.training.codes import codes_in_memory


def layer_of(reading):
    layer = ReadingLayer((6, 4), (3, 5), reading | {"initial_std": 0.4})
    with torch.no_grad():
        layer.a.fill_(0.3)
        layer.b.fill_(-0.2)
    return layer


@pytest.mark.parametrize(("reconstruction", "reverse"), [("alone", "same"), ("alone", "full"), ("together", "same")])
@pytest.mark.parametrize("iterations", [1, 3])
def test_both_updates_are_the_same(reconstruction, reverse, iterations, rng):
    reading = READING | {"reconstruction": reconstruction, "reverse": reverse, "iterations": iterations}
    layer = layer_of(reading)
    x = torch.rand(7, 6, 4, generator=rng)
    own, info = update(reading).step(layer, x, Noise.for_batch(7))
    by_autograd, other_info = Differentiated(reading).step(layer, x, Noise.for_batch(7))
    assert not isinstance(update(reading), Differentiated)
    torch.testing.assert_close(tuple(by_autograd), tuple(own), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(other_info.reconstruction, info.reconstruction)


@pytest.mark.parametrize("reconstruction", ["alone", "together"])
def test_capsules_that_are_off_do_not_learn(reconstruction, rng):
    reading = READING | {"reconstruction": reconstruction, "on": "squash"}
    layer = layer_of(reading)
    with torch.no_grad():
        layer.w_JNMI[1] = 0
        layer.b[1] = 0  # z_1 = 0, so |squash(z_1)| = 0
    gradients, _ = update(reading).step(layer, torch.rand(7, 6, 4, generator=rng), Noise.for_batch(7))
    assert (gradients.w_JNMI.abs().sum((1, 2, 3)) > 0).tolist() == [True, False, True]


def test_the_gradient_through_routing_differs(rng):
    reading = READING | {"iterations": 3, "gradient": "through"}
    layer = layer_of(reading)
    x = torch.rand(7, 6, 4, generator=rng)
    through, _ = Differentiated(reading).step(layer, x, Noise.for_batch(7))
    fixed, _ = Differentiated(reading | {"gradient": "fixed"}).step(layer, x, Noise.for_batch(7))
    difference = (through.w_JNMI - fixed.w_JNMI).abs().max()
    assert 1e-5 < difference < fixed.w_JNMI.abs().max()
    torch.testing.assert_close(through.a, fixed.a)


def test_biases_start_and_learn_as_the_reading_says(model):
    codes = codes_in_memory(model, data.load("digits", "train").pixels[:128])
    mean_logit = torch.logit(torch.from_numpy(codes).float().mean(0), eps=1e-4)
    still = {"epochs": 1, "learning_rate": 0.0}
    trained = train(model, codes, READING | still | {"visible_bias": "mean"}).top
    torch.testing.assert_close(trained.a.detach(), mean_logit, atol=1e-3, rtol=1e-3)
    trained = train(model, codes, READING | {"epochs": 2}).top
    assert not trained.a.any()
    assert not trained.b.any()
    trained = train(model, codes, READING | {"epochs": 2, "visible_bias": "zero", "hidden_bias": True}).top
    assert trained.a.any()
    assert trained.b.any()


class Scored:
    """Readings with a given blurred FID, instead of a search."""

    def __init__(self, scores):
        self.rows = [{"reading": READING | change, "factors": {"1": {"fid_blurred": fid}}} for change, fid in scores]

    def best(self, count, **fixed):
        return literal.best_readings(self.rows, count, **fixed)


def test_the_best_change_is_combined_with_the_next():
    search = Scored(
        [
            ({}, 60),
            ({"learning_rate": 0.02}, 50),
            ({"on": "half"}, 55),
            ({"learning_rate": 0.005}, 58),
            ({"seed": 1}, 1),
        ]
    )
    changes = [literal.changes_of(reading) for reading in literal.combinations(search)]
    # The rate of the best reading wins over another rate.
    assert changes == [{"learning_rate": 0.02, "on": "half"}, {"learning_rate": 0.02}]


def test_the_best_reading_is_that_of_the_logits_that_undo_sharing():
    rows = [
        {
            "reading": READING | {"reconstruction": "together"},
            "factors": {"1": {"fid_blurred": 80}, "20": {"fid_blurred": 20}},
        },
        {"reading": READING, "factors": {"1": {"fid_blurred": 60}}},
    ]
    assert literal.best_readings(rows, 1) == [rows[0]["reading"]]
    assert literal.best_readings(rows, 1, **literal.KINDS["alone"]) == [READING]


def test_a_seed_changes_the_weights(model):
    codes = codes_in_memory(model, data.load("digits", "train").pixels[:128])
    short = READING | {"epochs": 1}
    one = train(model, codes, short).top.w_JNMI
    assert torch.equal(one, train(model, codes, short).top.w_JNMI)
    assert not torch.equal(one, train(model, codes, short | {"seed": 1}).top.w_JNMI)
