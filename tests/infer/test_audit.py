"""The audit of routing: each check on layers where the answer is known."""

import json

import pytest
import torch

from capspoe.errors import InputError
from capspoe.figures.audit import draw_audit
from capspoe.infer.audit import audit_network, audit_routing, controls, ridge_accuracy
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import reference

SHAPE = {"lower": (12, 4), "upper": (3, 5)}
NORMALIZE = pytest.mark.parametrize("normalize", ["lower", "upper"])


def a_layer(**options):
    return CapsuleLayer(**SHAPE, initial_std=0.5, seed=1, **options).requires_grad_(False)


@pytest.fixture
def x(rng):
    return torch.rand(40, 12, 4, generator=rng)


@NORMALIZE
def test_controls_are_routing_weights(normalize, x):
    layer = a_layer(normalize=normalize, sharpness=2.0)
    c = layer(x).c
    weights = {name: make(x, c) for name, make in controls(layer, torch.Generator().manual_seed(0)).items()}
    axis = 2 if normalize == "lower" else 1
    for name, other in weights.items():
        torch.testing.assert_close(other.sum(axis), torch.ones_like(other.sum(axis)), msg=name)
    torch.testing.assert_close(weights["routing"], c)
    torch.testing.assert_close(weights["uniform"], torch.full_like(c, 1 / layer.fan))
    torch.testing.assert_close(weights["another input's"][1], c[0])
    torch.testing.assert_close(weights["shuffled"].sort(2).values, c.sort(2).values)
    assert (weights["shuffled"] != c).any()
    expected = reference(x, layer.W, 3, normalize, "cosine", -2.0)[0]
    torch.testing.assert_close(weights["negated"], expected, rtol=1e-4, atol=1e-6)

    def deviation(c):
        return c.log().var(axis).mean().sqrt()

    assert deviation(weights["random"]) == pytest.approx(float(deviation(c)), rel=0.1)


@NORMALIZE
def test_own_weights_change_nothing_and_their_error_is_that_of_the_layer(normalize, x):
    layer = a_layer(gate="none", neurons="binary", normalize=normalize)
    audit = audit_routing(layer, x)
    c, z = layer(x)
    own = audit.controls["routing"]
    assert own.pose_change == pytest.approx(0, abs=1e-5)
    assert own.same_winner == 1
    error = (layer.visible_mean(torch.sigmoid(z), c) - x).square().mean()
    assert own.reconstruction == pytest.approx(float(error), rel=1e-4)
    assert audit.controls["uniform"].pose_change > 0.01


def test_equal_inputs_have_static_weights(x):
    layer = a_layer()
    assert audit_routing(layer, x[:1].expand(10, -1, -1)).static_share == pytest.approx(1, abs=1e-4)
    assert audit_routing(layer, x).static_share < 0.9


def test_without_sharpness_all_controls_are_uniform(x):
    audit = audit_routing(a_layer(sharpness=0.0), x)
    assert audit.entropy == pytest.approx(1, abs=1e-5)
    assert audit.moved == pytest.approx(0, abs=1e-5)
    for control in audit.controls.values():
        assert control.pose_change == pytest.approx(0, abs=1e-4)


def test_starved_capsules(x):
    layer = a_layer(sharpness=30.0, agreement="dot", centred=False)
    layer.d[2] = -1e3  # the gate never chooses it
    layer.w_JNMI[..., 4] = 0  # its prediction is 0 and agrees with nothing, so that the others take its weight
    audit = audit_routing(layer, x)
    assert audit.starved_upper == (2,)
    assert 4 in audit.starved_lower
    assert audit.use[2] == pytest.approx(0, abs=1e-6)


def test_without_a_bias_a_negative_input_has_the_same_lengths(x):
    layer = a_layer(gate="none", neurons="binary")
    layer.mu.fill_(0.5)
    symmetric = audit_routing(layer, x)
    assert symmetric.sign_asymmetry == pytest.approx(0, abs=1e-4)
    assert symmetric.same_winner_of_negative == 1
    layer.b.fill_(2.0)
    assert audit_routing(layer, x).sign_asymmetry > 0.05


def test_the_classifier_reads_classes(rng):
    labels = torch.arange(200) % 7 % 4
    noise = torch.randn(200, 6, generator=rng)
    assert ridge_accuracy(noise + 8 * torch.eye(6)[labels], labels) > 0.98
    assert ridge_accuracy(noise, labels) < 0.5
    layer = a_layer()
    assert audit_routing(layer, torch.rand(20, 12, 4, generator=rng)).controls["routing"].accuracy is None


def test_wrong_input_is_named(x):
    with pytest.raises(InputError, match="one routing iteration"):
        audit_routing(a_layer(iterations=1), x)
    with pytest.raises(InputError, match="two inputs"):
        audit_routing(a_layer(), x[:1])
    with pytest.raises(InputError, match="labels must have one entry for each of the 40 inputs"):
        audit_routing(a_layer(), x, labels=[0, 1])


def test_a_network_has_an_audit_and_a_figure_for_every_layer(model, images):
    (audit,) = audit_network(model, images, [0, 1] * 10)
    assert json.loads(json.dumps(audit.to_dict()))["inputs"] == 20
    assert len(audit.use) == model.top.upper[0]
    figure = draw_audit(audit)
    text = [text.get_text() for part in figure.subfigs for text in part.texts]
    assert text == audit.summary()
    assert len(figure.axes) == 4
