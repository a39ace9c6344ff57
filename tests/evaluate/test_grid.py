"""The grid of images, against one that was put there."""

import numpy as np
import pytest

from capspoe.evaluate.grid import grid


@pytest.fixture
def smooth():
    """Bright images without any grid: random waves, each with a phase of its own."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:20, :18] / 10
    phase = rng.uniform(0, 2 * np.pi, (400, 1, 1))
    slope = rng.uniform(-2, 2, (2, 400, 1, 1))
    return (0.7 + 0.1 * np.sin(slope[0] * y + slope[1] * x + phase))[..., None].astype(np.float32)


def test_a_grid_is_found_and_noise_is_none(smooth):
    rng = np.random.default_rng(1)
    assert grid(smooth) < 0.0005
    noisy = smooth + rng.choice([-0.1, 0.1], smooth.shape).astype(np.float32)
    assert grid(noisy) < 0.001
    mesh = smooth.copy()
    mesh[:, ::2, 1::2] += 0.04  # a quarter of the pixels; the 3x3 means take 2/9 to 4/9 of it away
    assert grid(mesh) == pytest.approx(0.04 * 3 / 4, rel=0.35)
    stripes = smooth.copy()
    stripes[:, 1::2] += 0.04
    assert grid(stripes) > 0.01


def test_uint8_and_chunks_give_the_same(smooth, monkeypatch):
    mesh = smooth.copy()
    mesh[:, ::2, 1::2] += 0.04
    as_bytes = np.rint(255 * mesh).astype(np.uint8)
    whole = grid(as_bytes)
    assert whole == pytest.approx(grid(mesh), abs=0.001)
    monkeypatch.setattr("capspoe.evaluate.grid.CHUNK", 70)
    assert grid(as_bytes) == pytest.approx(whole, abs=1e-7)


def test_only_ink_counts(smooth):
    mesh = 0.3 * smooth
    mesh[:, ::2, 1::2] += 0.04
    assert grid(mesh) == 0
    assert grid(np.zeros((3, 8, 8, 1), np.float32)) == 0
