"""Dark ink on a light ground, or light ink on a dark one."""

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.infer.polarity import Polarity
from capspoe.model.build import build_network

WHITE = np.zeros((2, 8, 8, 1), np.uint8)  # white ink: two strokes in the middle
WHITE[:, 3:5, 2:6] = 255


def test_the_border_decides():
    assert Polarity.of_images(WHITE) == Polarity(dark=False)
    assert Polarity.of_images(255 - WHITE) == Polarity(dark=True)
    assert Polarity.of_images(1 - WHITE / 255) == Polarity(dark=True)
    inside = WHITE.copy()
    inside[:, 1:-1, 1:-1] = 255  # most pixels, but none of the border
    assert not Polarity.of_images(inside).dark
    # 28 pixels on the border of an image: 14 of them are half, 15 most.
    for count, dark in ((14, False), (15, True)):
        image = np.zeros((1, 8, 8, 1))
        rows, columns = np.nonzero(np.pad(np.zeros((6, 6)), 1, constant_values=1))
        image[0, rows[:count], columns[:count]] = 1
        assert Polarity.of_images(image).dark is dark


@pytest.mark.parametrize("pixels", [WHITE, WHITE / np.float32(255), torch.from_numpy(WHITE), torch.rand(2, 1, 4, 4)])
def test_ink_is_its_own_inverse_and_keeps_the_type(pixels):
    assert Polarity().ink(pixels) is pixels
    negative = Polarity(dark=True).ink(pixels)
    assert negative.dtype == pixels.dtype
    white = 255 if "uint8" in str(pixels.dtype) else 1
    assert (negative + pixels == white).all()
    assert abs(Polarity(dark=True).ink(negative) - pixels).max() < 1e-6


def test_colours_have_none():
    photograph = np.full((1, 8, 8, 3), 250, np.uint8)
    assert not Polarity.of_images(photograph).dark


@torch.no_grad()
def test_a_network_shows_what_it_has_learned():
    network = build_network(Config(channels=8, layers="4x3"), (12, 12, 1)).eval()
    assert not Polarity.of_network(network).dark  # grey before training
    network.codec.up_2.bias.fill_(3.0)
    assert Polarity.of_network(network).dark
    network.codec.up_2.bias.fill_(-3.0)
    assert not Polarity.of_network(network).dark
    in_colour = build_network(Config(channels=8, layers="4x3"), (12, 12, 3)).eval()
    in_colour.codec.up_2.bias.fill_(3.0)
    assert not Polarity.of_network(in_colour).dark
