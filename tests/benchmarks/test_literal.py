"""Readings of the paper: the update by automatic differentiation is the program's where both exist."""

import copy

import numpy as np
import pytest
import torch
from benchmarks.quality import literal
from benchmarks.quality.readings import READING, Differentiated, ReadingLayer, drawn_on, train, update

from capspoe import data
from capspoe.model.noise import Noise
from capspoe.model.routing import squash_length
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


@pytest.mark.parametrize("on", ["squash", "one", 0.4])
def test_both_updates_draw_the_same_capsules(on, rng):
    reading = READING | {"reconstruction": "together", "on": on}
    layer = layer_of(reading)
    x = torch.rand(50, 6, 4, generator=rng)
    own, _ = update(reading).step(layer, x, Noise.for_batch(50))
    by_autograd, _ = Differentiated(reading).step(layer, x, Noise.for_batch(50))
    assert not isinstance(update(reading), Differentiated)
    torch.testing.assert_close(tuple(by_autograd), tuple(own), rtol=1e-4, atol=1e-6)


def test_capsules_are_on_as_often_as_the_reading_says(rng):
    z = torch.randn(2000, 3, 5, generator=rng)
    noise = Noise.for_batch(2000)
    length = squash_length(z)
    shares = {"all": 1.0, "squash": length.mean(), "one": 1 / 3, 0.4: 0.4}
    for on, share in shares.items():
        assert abs(drawn_on(on, z, noise).mean() - share) < 0.02
    one = drawn_on("one", z, noise)
    assert (one.sum(1) == 1).all()
    assert (length * one).sum(1).mean() > length.mean() + 0.01


def test_one_capsule_that_is_on_learns_from_an_image(rng):
    layer = layer_of(READING)
    x = torch.rand(1, 6, 4, generator=rng)
    learned = set()
    for seed in range(20):
        gradients, _ = update(READING | {"on": "one"}).step(layer, x, Noise.for_batch(1, seed))
        (capsule,) = gradients.w_JNMI.abs().sum((1, 2, 3)).nonzero().flatten().tolist()
        learned.add(capsule)
    assert len(learned) > 1


def test_the_factor_multiplies_what_a_capsule_says_and_not_the_bias(model):
    network = copy.deepcopy(model)
    with torch.no_grad():
        network.top.w_JNMI.zero_()
        network.top.a.normal_(generator=torch.Generator().manual_seed(0))
    once, often = (literal.paper_samples(network, 4, factor) for factor in (1, 20))
    np.testing.assert_allclose(once, often)
    with torch.no_grad():
        network.top.w_JNMI.normal_(generator=torch.Generator().manual_seed(0))
    once, often = (literal.paper_samples(network, 4, factor) for factor in (1, 20))
    assert np.abs(once - often).max() > 0.01


def test_the_factors_are_those_that_the_reading_suggests():
    layer = layer_of(READING)  # 6 to 3 capsules
    together = READING | {"reconstruction": "together"}
    assert literal.sampling_factors(together, layer) == (1, 2, 3)
    assert literal.sampling_factors(together | {"on": 0.5}, layer) == (1, 1.5, 2, 3)
    assert literal.sampling_factors(READING, layer) == (1,)
    assert literal.sampling_factors(READING | {"reverse": "full"}, layer) == (6,)


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


def test_the_best_changes_are_combined_in_pairs():
    search = Scored(
        [
            ({}, 60),
            ({"learning_rate": 0.02}, 50),
            ({"on": 0.5}, 55),
            ({"learning_rate": 0.005}, 58),
            ({"hidden_bias": True}, 59),
            ({"learning_rate": 0.02, "weight_decay": 0.0}, 40),
            ({"on": "squash", "seed": 1}, 1),
        ]
    )
    pairs = literal.combinations(search, literal.KINDS["alone"])
    changes = [literal.changes_of(reading, READING) for reading in pairs]
    # Two rates do not combine, only the best three single changes do, and other seeds do not count.
    assert changes == [{"learning_rate": 0.02, "on": 0.5}, {"learning_rate": 0.005, "on": 0.5}]


def test_a_reading_counts_with_its_best_factor():
    rows = [
        {
            "reading": READING | {"reconstruction": "together"},
            "factors": {"1": {"fid_blurred": 80}, "20": {"fid_blurred": 20}},
        },
        {"reading": READING, "factors": {"1": {"fid_blurred": 60}}},
    ]
    assert literal.best_readings(rows, 1) == [rows[0]["reading"]]
    assert literal.best_readings(rows, 1, **literal.KINDS["alone"].fixed) == [READING]


def test_a_seed_changes_the_weights(model):
    codes = codes_in_memory(model, data.load("digits", "train").pixels[:128])
    short = READING | {"epochs": 1}
    one = train(model, codes, short).top.w_JNMI
    assert torch.equal(one, train(model, codes, short).top.w_JNMI)
    assert not torch.equal(one, train(model, codes, short | {"seed": 1}).top.w_JNMI)
