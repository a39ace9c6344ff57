"""The way up and down, against the layers called one by one; and what images may look like."""

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.errors import CapspoeWarning, InputError
from capspoe.model.autoencoder import ConvAutoencoder
from capspoe.model.build import build_network
from capspoe.model.features import FeatureCode
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network, centre_crop
from capspoe.model.prior import Sampling


def small(image=(12, 12, 1), **options):
    """An untrained network whose weights are large enough to see."""
    network = build_network(Config(channels=8, **{"layers": "3x4", "prior_components": 1} | options), image).eval()
    with torch.no_grad():
        for layer in network.stack:
            layer.w_JNMI.mul_(10)
            layer.b.normal_(0, 0.5, generator=torch.Generator().manual_seed(1))
    return network


def tensors(n=5, side=12):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(0))


def scaled(x, factor):
    return torch.sigmoid(factor * torch.logit(x))


@torch.no_grad()
def test_encode(model, images):
    on, hidden = model.encode(images, posterior="energy")
    assert (on.shape, hidden.shape) == ((20, 4), (20, 4, 6))
    x = torch.from_numpy(images.astype(np.float32) / 255).permute(0, 3, 1, 2)
    code, top = model.codec.encode(x), model.top
    z = top(code).z
    np.testing.assert_allclose(hidden, z, atol=1e-5)
    visible = torch.einsum("jim,bim->bj", top.a, code - top.mu)
    expected = torch.softmax(z.square().sum(-1) / 2 + visible + top.d, -1)
    np.testing.assert_allclose(on, expected.detach(), atol=1e-5)


def test_the_settings_reach_every_layer():
    options = {"iterations": 2, "normalize": "upper", "agreement": "dot", "sharpness": 0.5, "bias": False}
    config = Config(channels=8, layers="5x4,3x6", seed=7, centred=False, dropout=0.3, code_noise=2.0, **options)
    network = build_network(config, (12, 12, 1))
    below, top = network.stack
    expected = [((4, 8), (5, 4), "none", "binary"), ((5, 4), (3, 6), "winner", "gaussian")]
    assert [(x.lower, x.upper, x.gate.name, x.neurons.name) for x in (below, top)] == expected
    for depth, layer in enumerate(network.stack):
        settings = {name: getattr(layer, name) for name in options}
        assert settings | {"agreement": layer.agreement.name} == options
        assert not layer.centred
        assert torch.equal(layer.w_JNMI, CapsuleLayer(layer.lower, layer.upper, seed=7 + depth).w_JNMI)
    assert (network.codec.dropout, network.codec.code_noise) == (0.3, 2.0)
    assert torch.equal(network.codec.up_2.weight, ConvAutoencoder((12, 12, 1), 8, seed=7).up_2.weight)


@torch.no_grad()
def test_up_through_three_layers():
    network = small(layers="6x5,5x4,3x6", neurons="binary")
    below, middle, top = network.stack
    up = network.up(tensors())
    torch.testing.assert_close(up.code, network.codec.encode(tensors()))
    torch.testing.assert_close(up.x, torch.sigmoid(middle(torch.sigmoid(below(up.code).z)).z))
    torch.testing.assert_close((up.c, up.z), tuple(top(up.x)))
    torch.testing.assert_close(up.hidden, torch.sigmoid(up.z))
    torch.testing.assert_close(up.on, top.on_probability(up.z, up.x))
    assert torch.equal(up.winner, up.on.argmax(-1))


@torch.no_grad()
@pytest.mark.parametrize("gate", ["winner", "none"])
def test_the_state_of_an_image(gate):
    up = small(gate=gate).up(tensors())
    alone = torch.zeros_like(up.hidden)
    alone[range(5), up.winner] = up.hidden[range(5), up.winner]
    assert torch.equal(up.state, alone if gate == "winner" else up.hidden)


@torch.no_grad()
def test_down_through_three_layers():
    """By default with reverse routing in every layer; the logit scale acts below the top layer."""
    network = small(layers="6x5,5x4,3x6", gate="none")
    network.logit_scale.fill_(3.0)
    below, middle, top = network.stack
    h = torch.randn(4, 3, 6, generator=torch.Generator().manual_seed(2))
    c = top.reverse(h)
    assert c.std() > 1e-3
    for given, used in ((None, c), (c.flip(2), c.flip(2))):
        x = scaled(top.visible_mean(h, used), 3.0)
        for layer in (middle, below):
            x = layer.visible_mean(x, layer.reverse(x))
        torch.testing.assert_close(network.down(h, given), network.codec.decode(x), rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_the_logit_scale_is_the_argument_the_setting_or_the_fitted_one():
    network, h = small(), torch.zeros(2, 3, 4)
    network.logit_scale.fill_(4.0)
    h[:, 1] = torch.tensor([[1.0], [-2.0]])
    plain = network.top.visible_mean(h, None)
    for options, argument, factor in (({}, None, 4.0), ({}, 2.0, 2.0), ({"logit_scale": 0.5}, None, 0.5)):
        network.sampling = Sampling(**options)
        expected = network.codec.decode(scaled(plain, factor))
        torch.testing.assert_close(network.down(h, None, argument), expected, rtol=1e-3, atol=1e-5)


@torch.no_grad()
def test_decode_pose():
    network = small(neurons="binary", agreement="dot")
    z = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    h = torch.zeros(3, 3, 4)
    h[range(3), [2, 0, 2]] = torch.sigmoid(z)
    assert network.top.reverse(h) is not None
    torch.testing.assert_close(network.decode_pose(torch.tensor([2, 0, 2]), z), network.down(h))
    assert not torch.allclose(network.down(h), network.down(h, torch.full((3, 3, 4), 1 / 4)))


@torch.no_grad()
def test_reconstruct_uses_the_winner_and_the_routing_of_the_way_up(model, images):
    decoded = model.reconstruct(images)
    x = model.codec.encode(model.tensor(images))
    c, z = model.top(x)
    on = model.encode(images).on.argmax(-1)
    h = torch.zeros_like(z)
    h[range(20), on] = z[range(20), on]
    assert model.logit_scale > 1
    code = scaled(model.top.visible_mean(h, c), model.logit_scale)
    np.testing.assert_allclose(decoded, model.array(model.codec.decode(code)), atol=1e-5)
    code = model.codec.encode(model.tensor(images))
    through = model.reconstruct(images, through="autoencoder")
    np.testing.assert_allclose(through, model.array(model.codec.decode(code)), atol=1e-5)
    with pytest.raises(InputError, match="through must be one of"):
        model.reconstruct(images, "the wall")


def test_decode_needs_to_know_which_capsule_is_on(model, images):
    on, hidden = model.encode(images)
    with pytest.raises(InputError, match="exactly one capsule is on in this network, not 2"):
        model.decode(hidden * [[[1], [0], [1], [0]]])
    decoded = model.decode(hidden, on)
    np.testing.assert_allclose(model.decode(hidden, on.argmax(1)), decoded, atol=1e-6)
    np.testing.assert_allclose(model.decode(hidden[:3], 2), model.decode(hidden[:3], np.full(3, 2)), atol=1e-6)
    alone = np.zeros_like(hidden)
    alone[range(20), on.argmax(1)] = hidden[range(20), on.argmax(1)]
    np.testing.assert_allclose(model.decode(alone), decoded, atol=1e-6)
    for wrong in (np.full(20, 4), np.full(20, -1), np.zeros((20, 3)), np.zeros(19, int), np.zeros(20)):
        with pytest.raises(InputError, match="on must be 20 capsule numbers below 4"):
            model.decode(hidden, wrong)
    for wrong, message in (
        (hidden[:, :3], r"shape \(n, 4, 6\)"),
        (hidden[:0], "shape"),
        (hidden * np.nan, "hidden contains NaN"),
    ):
        with pytest.raises(InputError, match=message):
            model.decode(wrong, 0)


def test_images_may_come_in_any_sensible_form(model, images):
    expected = model.encode(images).hidden
    for other in (images[..., 0], images / np.float64(255), (images / 255).astype(np.float32)):
        np.testing.assert_allclose(model.encode(other).hidden, expected, atol=1e-4)
    for one in (images[0], images[0, ..., 0]):
        np.testing.assert_allclose(model.encode(one).hidden, expected[:1], atol=1e-4)
    many = model.encode(np.tile(images, (27, 1, 1, 1)))  # several chunks
    np.testing.assert_allclose(many.hidden, np.tile(expected, (27, 1, 1)), atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.astype(int), "uint8 or float"),
        (lambda x: x.astype(float), r"values in \[0, 1\]"),
        (lambda x: x / 255 * np.nan, r"values in \[0, 1\]"),
        (lambda x: x / 255 - 0.1, r"values in \[0, 1\]"),
        (lambda x: x[:, :20], r"shape \(n, 28, 28, 1\) or \(n, 1, 28, 28\), not \(20, 20, 28, 1\)"),
        (lambda x: x[:0], "empty"),
        (lambda x: x.repeat(3, -1), "shape"),
        (lambda x: "cat.png", "uint8 or float"),
    ],
)
def test_other_images_are_refused(model, images, wrong, message):
    with pytest.raises(InputError, match=message):
        model.encode(wrong(images))


def test_integers_that_are_only_0_and_1_are_probably_meant_as_bool(model, images):
    with pytest.warns(CapspoeWarning, match="pass black and white images as bool"):
        model.encode((images > 99).astype(np.uint8))


def test_larger_images_are_cropped_from_the_centre_as_in_training(images):
    network = small((12, 9, 1), crop=12)
    pixels = images[:3, :17, :9]
    assert np.array_equal(centre_crop(pixels, 12), pixels[:, 2:14])
    np.testing.assert_array_equal(network.encode(pixels).hidden, network.encode(pixels[:, 2:14]).hidden)


@pytest.mark.parametrize(("features", "shape"), [(1, (1, 1)), (8, (1, 8)), (9, (2, 5)), (64, (8, 8))])
def test_features_in_the_place_of_the_autoencoder(features, shape):
    code = FeatureCode(features)
    rows = torch.rand(3, 1, 1, features)
    x = code.encode(rows)
    assert x.shape == (3, *shape) == (3, *code.capsules)
    torch.testing.assert_close(x.reshape(3, -1)[:, :features], rows.reshape(3, -1))
    assert not x.reshape(3, -1)[:, features:].any()
    assert torch.equal(code.decode(x), rows)


@torch.no_grad()
def test_a_pose_of_zero_decodes_with_the_bias_of_its_capsule():
    """0 is the centre of every capsule; `on` says which one, and its visible bias counts."""
    network = small()
    network.top.a.copy_(torch.linspace(-2, 2, network.top.a.numel()).view_as(network.top.a))
    J, N = network.top.upper
    decoded = network.decode(np.zeros((J, J, N)), np.arange(J))
    expected = network.down(torch.zeros(J, J, N), on=torch.arange(J))
    np.testing.assert_allclose(decoded, network.array(expected), atol=1e-6)
    assert len({image.tobytes() for image in decoded}) == J
    with pytest.raises(InputError, match="exactly one capsule is on in this network, not 0"):
        network.decode(np.zeros((1, J, N)))


def test_parts_that_do_not_fit_are_refused():
    codec = ConvAutoencoder((12, 12, 1), 8)
    with pytest.raises(InputError, match="one capsule layer or more"):
        Network(codec, [])
    with pytest.raises(InputError, match=r"layer 0 takes \(7, 8\) lower capsules, but there are \(4, 8\) below it"):
        Network(codec, [CapsuleLayer((7, 8), (3, 4))])
    with pytest.raises(InputError, match=r"layer 1 takes \(4, 8\) lower capsules, but there are \(3, 4\) below it"):
        Network(codec, [CapsuleLayer((4, 8), (3, 4)), CapsuleLayer((4, 8), (3, 4))])


def test_tensors_with_channels_first_are_the_same_images():
    network = small()
    images = np.random.default_rng(0).random((3, *network.image), np.float32)
    expected = network.encode(images).hidden
    channels_first = torch.from_numpy(images).permute(0, 3, 1, 2).requires_grad_()
    np.testing.assert_array_equal(network.encode(channels_first).hidden, expected)
    np.testing.assert_array_equal(network.encode(channels_first[1]).hidden, expected[1:2])
    up = network(channels_first)
    np.testing.assert_allclose(up.hidden.detach().numpy(), expected, atol=1e-5)
    (gradient,) = torch.autograd.grad(up.hidden.sum(), channels_first)
    assert gradient.abs().max() > 0
    np.testing.assert_array_equal(network(images).hidden.detach().numpy(), up.hidden.detach().numpy())
