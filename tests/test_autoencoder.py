"""Shapes, the order of capsules, noise that belongs to the image, and learning."""

import pytest
import torch

from capspoe.autoencoder import ConvAutoencoder, from_capsules, to_capsules
from capspoe.errors import InputError
from capspoe.noise import Noise


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
        ((32, 32, 3), 128, 1024),
        ((8, 8, 1), 32, 16),
        ((29, 31, 1), 8, 56),
        ((17, 64, 3), 8, 50),
        ((128, 128, 3), 8, 3136),
    ],
)
def test_any_size_goes_down_and_comes_back(image, channels, capsules):
    network = ConvAutoencoder(image, channels)
    height, width, colours = image
    images = torch.rand(2, colours, height, width)
    x = network.encode(images)
    assert x.shape == (2, capsules, 8) == (2, *network.capsules)
    assert ((x > 0) & (x < 1)).all()
    painted = network.decode(x)
    assert painted.shape == images.shape
    assert ((painted > 0) & (painted < 1)).all()


def test_the_papers_filter_banks():
    network = ConvAutoencoder()
    assert network.down_1.weight.shape == (128, 1, 9, 9)
    assert network.down_2.weight.shape == (128, 128, 9, 9)
    assert network.code_shape == (128, 6, 6)


def test_noise_and_dropout_do_not_depend_on_the_batch():
    network = ConvAutoencoder((20, 20, 1), 8, dropout=0.3, code_noise=1.0)
    images = torch.rand(6, 1, 20, 20)
    whole = network.loss(images, Noise(1, 2, torch.arange(6)))
    pieces = [network.loss(images[s], Noise(1, 2, torch.arange(6)[s])) for s in (slice(0, 1), slice(1, 6))]
    torch.testing.assert_close(whole, torch.cat(pieces))
    assert not torch.allclose(whole, network.loss(images, Noise(1, 3, torch.arange(6))))


def test_without_noise_the_loss_is_the_plain_cross_entropy():
    network = ConvAutoencoder((20, 20, 1), 8, dropout=0, code_noise=0)
    images = torch.rand(3, 1, 20, 20)
    painted = network.decode(network.encode(images))
    expected = -(images * painted.log() + (1 - images) * (1 - painted).log()).mean((1, 2, 3))
    torch.testing.assert_close(network.loss(images, Noise.for_batch(3)), expected)


def test_dropout_drops_its_share_and_keeps_the_mean():
    network = ConvAutoencoder((20, 20, 1), 8, dropout=0.4, code_noise=0)
    seen = []
    network.image_logits = lambda code: seen.append(code) or torch.zeros(len(code), 1, 20, 20)
    images = torch.rand(200, 1, 20, 20)
    network.loss(images, Noise.for_batch(200))
    dropped = (seen[0] == 0).float().mean().item()
    assert dropped == pytest.approx(0.4, abs=0.02)
    clean = from_capsules(network.encode(images), network.code_shape)
    assert seen[0].mean().item() == pytest.approx(clean.mean().item(), rel=0.02)


def test_code_noise_drives_the_code_toward_zero_and_one():
    grey = {}
    for code_noise in (0.0, 2.0):
        network = ConvAutoencoder((12, 12, 1), 8, dropout=0, code_noise=code_noise)
        optimiser = torch.optim.Adam(network.parameters(), 3e-3)
        images = torch.rand(32, 1, 12, 12, generator=torch.Generator().manual_seed(0)).round()
        for step in range(150):
            loss = network.loss(images, Noise.for_batch(32, step=step)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        x = network.encode(images).detach()
        grey[code_noise] = (x * (1 - x)).mean().item()
    assert grey[2.0] < 0.8 * grey[0.0]


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
