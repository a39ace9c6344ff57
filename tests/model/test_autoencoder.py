"""The autoencoder: shapes, the order of capsules, and its noisy loss."""

import pytest
import torch

from capspoe.errors import InputError
from capspoe.model.autoencoder import (
    ConvAutoencoder,
    EdgeLoss,
    EvenUpsampling,
    cross_entropy,
    from_capsules,
    mirrored,
    to_capsules,
)
from capspoe.model.noise import Noise


def test_a_capsule_is_eight_neighbouring_channels_at_one_position():
    code = torch.arange(2 * 32 * 6 * 5).reshape(2, 32, 6, 5).float()
    x = to_capsules(code)
    assert x.shape == (2, 6 * 5 * 4, 8)
    row, column, group = 3, 2, 1
    assert torch.equal(x[1, (row * 5 + column) * 4 + group], code[1, 8:16, row, column])
    assert torch.equal(from_capsules(x, (32, 6, 5)), code)


@pytest.mark.parametrize(
    ("image", "channels", "capsules"),
    [
        ((28, 28, 1), 128, 576),  # the paper's sizes
        ((28, 28, 3), 32, 144),
        ((5, 5, 1), 8, 4),
        ((8, 8, 1), 32, 16),
        ((17, 64, 3), 8, 50),
    ],
)
@pytest.mark.parametrize("upsampling", [EvenUpsampling, mirrored])
def test_any_size_is_encoded_and_decoded(image, channels, capsules, upsampling):
    network = ConvAutoencoder(image, channels, upsampling=upsampling)
    height, width, colours = image
    images = torch.rand(2, colours, height, width)
    x = network.encode(images)
    assert x.shape == (2, capsules, 8) == (2, *network.capsules)
    assert ((x > 0) & (x < 1)).all()
    decoded = network.decode(x)
    assert decoded.shape == images.shape
    assert ((decoded > 0) & (decoded < 1)).all()


def test_the_convolutions(rng):
    """Conv, LeakyReLU, conv with stride 2, sigmoid; and the mirror image of it."""
    network = ConvAutoencoder((15, 17, 1), 8)
    images = torch.rand(2, 1, 15, 17, generator=rng)
    layers = (network.down_1, torch.nn.LeakyReLU(), network.down_2, torch.nn.Sigmoid())
    code = torch.nn.Sequential(*layers)(images)
    torch.testing.assert_close(from_capsules(network.encode(images), network.code_shape), code)
    layers = (network.up_1, torch.nn.LeakyReLU(), network.up_2, torch.nn.Sigmoid())
    torch.testing.assert_close(network.decode(to_capsules(code)), torch.nn.Sequential(*layers)(code))


def test_an_even_kernel_treats_all_pixels_alike():
    """Each pixel away from the border is a sum of as many weights, and the last ones depend on the code too."""
    odd_sides, even_sides = EvenUpsampling(8, 9, (19, 19)), EvenUpsampling(8, 9, (20, 20))
    paper = mirrored(8, 9, (20, 20))
    for module in (odd_sides, even_sides, paper):
        torch.nn.init.ones_(module.weight)
        torch.nn.init.zeros_(module.bias)
    code = torch.ones(1, 8, 6, 6)
    for module, sides in ((odd_sides, 19), (even_sides, 20)):
        sums = module(code)[0, 0]
        assert sums.shape == (sides, sides)
        assert (sums[8:12, 8:12] == sums[8, 8]).all()
        assert sums.amin() > 0
    grid = paper(code)[0, 0]
    assert grid.shape == (20, 20)
    assert grid[8, 8] != grid[9, 9]
    assert (grid[-1] == 0).all()


def test_the_edge_loss_written_out(rng):
    images = torch.rand(3, 2, 4, 5, generator=rng)
    logits = torch.randn(3, 2, 4, 5, generator=rng)
    error = torch.sigmoid(logits) - images
    found = EdgeLoss(0.7)(logits, images)
    for k in range(3):
        rows = [abs(error[k, c, y + 1, x] - error[k, c, y, x]) for c in range(2) for y in range(3) for x in range(5)]
        columns = [
            abs(error[k, c, y, x + 1] - error[k, c, y, x]) for c in range(2) for y in range(4) for x in range(4)
        ]
        edges = sum(rows) / len(rows) + sum(columns) / len(columns)
        torch.testing.assert_close(found[k], cross_entropy(logits, images)[k] + 0.7 * edges)


@pytest.mark.parametrize(("dropout", "code_noise"), [(0.0, 0.0), (0.4, 0.0), (0.0, 2.0), (0.4, 2.0)])
def test_the_loss_written_out(dropout, code_noise, rng):
    """Noise on the code's logits, dropout on the code, then the cross-entropy of the pixels."""
    network = ConvAutoencoder((20, 20, 1), 8, dropout=dropout, code_noise=code_noise, image_loss=cross_entropy)
    images, noise = torch.rand(3, 1, 20, 20, generator=rng), Noise.for_batch(3)
    logits = torch.logit(from_capsules(network.encode(images), network.code_shape))
    code = torch.sigmoid(logits + code_noise * noise.normal(0, *logits.shape[1:]))
    code = torch.where(noise.uniform(1, *code.shape[1:]) < dropout, 0, code / (1 - dropout))
    decoded = network.decode(to_capsules(code))
    expected = -(images * decoded.log() + (1 - images) * (1 - decoded).log()).mean((1, 2, 3))
    torch.testing.assert_close(network.loss(images, noise), expected)


def test_the_seed_decides_the_weights():
    one, same, other = (ConvAutoencoder((20, 20, 1), 8, seed=s) for s in (1, 1, 2))
    assert torch.equal(one.down_2.weight, same.down_2.weight)
    assert not torch.equal(one.down_2.weight, other.down_2.weight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": (4, 4, 1)}, "too small: at least 5x5"),
        ({"channels": 12}, "multiple of 8"),
        ({"dropout": 1.0}, "dropout"),
        ({"code_noise": -1.0}, "code_noise"),
    ],
)
def test_what_does_not_fit_is_said(arguments, message):
    with pytest.raises(InputError, match=message):
        ConvAutoencoder(**arguments)
