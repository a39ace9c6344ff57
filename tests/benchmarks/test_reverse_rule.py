"""The rules that are compared decode the same poses."""

import copy

import numpy as np
from benchmarks.quality.reverse_rule import mean_routing, reconstruction_errors, reverse_routing, samples


def test_with_reverse_routing_the_samples_are_those_of_users(model):
    np.testing.assert_array_equal(samples(model, reverse_routing, 300, 3), model.sample(300, seed=3).images)


def test_uniform_mean_weights_are_reverse_routing(model):
    uniform = copy.deepcopy(model)
    uniform.top.mean_routing.fill_(1)
    expected = samples(model, reverse_routing, 20, 0)
    np.testing.assert_allclose(samples(uniform, mean_routing, 20, 0), expected, atol=1e-5)
    assert np.abs(samples(model, mean_routing, 20, 0) - expected).max() > 1e-3


def test_errors_with_own_weights_are_those_of_the_reconstructions(model, images):
    errors = reconstruction_errors(model, images)
    expected = np.square(model.reconstruct(images) - images / 255).mean()
    assert abs(errors["the image's own weights"] - expected) < 1e-5
    assert errors["mean routing weights"] != errors["reverse routing"]
