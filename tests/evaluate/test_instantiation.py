"""How a traversal is made and what is read from it."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from capspoe import CapsulePoE
from capspoe.config import preset
from capspoe.evaluate.instantiation import instantiation, spearman, traversals


def test_spearman_is_scipys():
    values = np.random.default_rng(0).standard_normal((6, 9))
    values[1, 3] = values[1, 4]
    expected = [spearmanr(row, np.arange(9)).statistic for row in values]
    np.testing.assert_allclose(spearman(values), expected)
    assert spearman(np.ones((1, 5))) == 0


class Bars:
    """Stands for a model of two capsules; only what `instantiation` asks of one."""

    class top:
        upper = (2, 3)


def bar(thick, lean, side=28, long=20):
    """A vertical bar, leaning by `lean` pixels to the right for each pixel upwards; edges drawn in part."""
    y, x = np.mgrid[0:side, 0:side].astype(float)
    middle = (side - 1) / 2
    from_axis = np.abs(x - middle - lean * (middle - y)) / np.sqrt(1 + lean**2)
    return np.clip(thick / 2 + 0.5 - from_axis, 0, 1) * (np.abs(y - middle) <= long / 2)


def drawn(model, capsule, basis, starts, seed):
    """Capsule 0: dimension 2 makes thicker, 0 leans to the left. Capsule 1: dimension 1 makes a bit thicker."""
    t = np.linspace(-1, 1, 9)
    still = [bar(3, 0.0) for _ in t]
    if capsule == 0:
        rows = [[bar(3, -0.3 * s) for s in t], still, [bar(3 + s, 0.0) for s in t]]
    else:
        rows = [still, [bar(3 + 0.01 * s, 0.0) for s in t], still]
    return np.array(rows)[:, None, :, :, :, None].repeat(starts, 1)


def test_the_dimension_that_controls_a_measure_is_found(monkeypatch):
    monkeypatch.setattr("capspoe.evaluate.instantiation.traversals", drawn)
    rng = np.random.default_rng(0)
    test = np.array([bar(rng.uniform(2, 4), rng.uniform(-0.3, 0.3)) for _ in range(60)])
    found = instantiation(Bars(), test)["measures"]
    thick, lean = found["thickness"]["capsules"], found["slant"]["capsules"]
    assert (thick[0]["dimension"], lean[0]["dimension"]) == (2, 0)
    assert thick[0]["correlation"] == pytest.approx(1)
    assert lean[0]["correlation"] == pytest.approx(-1)
    assert thick[1]["dimension"] == 1
    assert thick[1]["correlation"] == pytest.approx(1)  # perfect, but nobody would see it
    assert thick[1]["effect"] < 0.1
    assert found["thickness"]["share_of_capsules"] == 0.5
    assert found["slant"]["share_of_capsules"] == 0.5


@pytest.mark.parametrize("basis", ["axes", "neurons"])
def test_a_traversal_moves_one_dimension(basis):
    model = CapsulePoE(preset("small", "digits").replace(channels=8, layers="3x4"), (12, 12, 1)).eval()
    rng = torch.Generator().manual_seed(0)
    model.prior.axes.copy_(torch.randn(3, 4, 4, generator=rng))
    model.prior.centre.copy_(torch.randn(3, 4, generator=rng))
    images = traversals(model, 1, basis, bases=2)
    assert images.shape == (4, 2, 9, 12, 12, 1)
    z = model.prior.centre[1].clone()
    if basis == "axes":
        z = z + 2 * model.prior.axes[1][:, 3]  # the last step goes to two standard deviations
    else:
        z[3] += 2 * model.prior.axes[1][3].norm()
    hidden = np.zeros((2, 3, 4), np.float32)
    hidden[:, 1] = torch.stack([model.prior.centre[1], z]).numpy()
    middle, end = model.decode(hidden)
    np.testing.assert_allclose(images[2, 0, 4], middle, atol=1e-5)
    np.testing.assert_allclose(images[3, 0, 8], end, atol=1e-5)
    assert np.isfinite(traversals(model, 1, basis, bases=2, seed=-1)).all()
