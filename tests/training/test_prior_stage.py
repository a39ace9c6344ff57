"""The prior of every capsule, and the logit scale."""

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.infer.sample import sample
from capspoe.model.build import build_network
from capspoe.training import prior_stage as fitting
from capspoe.training.prior_stage import best_prior_scale, find_logit_scale, fit_prior, poses_of_capsules


def network(**options):
    config = Config(channels=8, **{"layers": "3x4", "prior_components": 1} | options)
    return build_network(config, (12, 12, 1)).eval()


def codes(network, n=700):
    return np.random.default_rng(0).uniform(0, 1, (n, *network.top.lower)).astype(np.float32)


@torch.no_grad()
@pytest.mark.parametrize("gate", ["winner", "none"])
def test_each_prior_is_that_of_the_capsules_own_images(gate):
    net = network(gate=gate)
    x = codes(net)
    fit_prior(net, x)
    up = net.up_from_code(torch.from_numpy(x))
    torch.testing.assert_close(net.prior.use, up.on.sum(0) / up.on.sum())
    for j in range(3):
        z = up.z[up.winner == j, j] if gate == "winner" else up.z[:, j]
        torch.testing.assert_close(net.prior.centre[j], z.mean(0), rtol=1e-3, atol=1e-4)
        covariance = net.prior.axes[j] @ net.prior.axes[j].T
        torch.testing.assert_close(covariance, torch.cov(z.T, correction=0), rtol=1e-2, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("gate", ["winner", "none"])
def test_many_images_are_chosen_evenly_by_any_number_of_processes(gate, monkeypatch):
    """Not the first ones: folders are sorted by class. Three processes choose what one does."""
    monkeypatch.setattr(fitting, "PRIOR_IMAGES", 60)
    net = network(gate=gate)
    x = codes(net, 1500)
    _, chosen = poses_of_capsules(net, x)
    up = net.up_from_code(torch.from_numpy(x))
    for j, z in enumerate(chosen):
        own = up.z[:, j].numpy() if gate == "none" else np.where(up.winner[:, None] == j, up.z[:, j], np.nan)
        rows = [int(np.abs(own - pose).sum(1).argsort()[0]) for pose in z]
        assert len(set(rows)) == len(z) == min(60, int((up.winner == j).sum()) if gate == "winner" else 1500)
        np.testing.assert_allclose(own[rows], z, atol=1e-4)
        assert rows == sorted(rows)
        available = np.flatnonzero(~np.isnan(own[:, 0]))
        if len(available) > 60:
            assert abs(np.mean(rows) - available.mean()) < 3 * available.std() / np.sqrt(60)
    parts = []
    for rank in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(fitting.distributed, "split", lambda index, rank=rank: np.array_split(index, 3)[rank])
            patch.setattr(fitting.distributed, "gather", lambda kept: parts.append(kept) or [kept])
            poses_of_capsules(net, x)
    monkeypatch.setattr(fitting.distributed, "gather", lambda kept: parts)
    _, together = poses_of_capsules(net, x)
    for one, several in zip(chosen, together, strict=True):
        np.testing.assert_array_equal(one, several)


@pytest.mark.parametrize("wanted", [0.8, 1.0, 1.5, 2.2, 4.0])
def test_the_prior_scale_gives_the_spread_of_the_codes(wanted):
    """Here codes vary `wanted` times as much as those drawn at scale 1; scales from 1 to 3 are tried."""
    rng = np.random.default_rng(0)
    shape = np.array([1, 0.5, 0.2])
    codes = wanted * shape * rng.normal(size=(4000, 3)) + [3, 2, 1]
    drawn = shape * rng.normal(size=(2000, 3))
    assert best_prior_scale(lambda scale: scale * drawn + [3, 2, 1], codes) == pytest.approx(
        np.clip(wanted, 1, 3), abs=0.1
    )


def test_codes_without_spread_have_the_prior_scale_1():
    drawn = np.random.default_rng(0).normal(size=(50, 3))
    assert best_prior_scale(lambda scale: scale * drawn, np.zeros((1, 3))) == 1
    assert best_prior_scale(lambda scale: scale * drawn, np.zeros((40, 3))) == 1


@torch.no_grad()
def test_samples_have_the_fitted_prior_scale():
    net = network()
    x = codes(net)
    net.top.w_JNMI.mul_(30)  # so that poses matter
    fit_prior(net, 0.5 + 4 * (x - 0.5))
    assert net.prior.scale in fitting.PRIOR_SCALES[1:]
    usual = sample(net, 8)
    np.testing.assert_array_equal(usual.images, sample(net, 8, prior_scale=float(net.prior.scale)).images)
    assert not np.array_equal(usual.images, sample(net, 8, prior_scale=1.0).images)


@pytest.mark.parametrize(("slope", "expected"), [(0.02, 5), (-0.04, 3), (0.09, 2), (0.4, 1.2), (2, 1)])
def test_the_logit_scale_is_the_largest_that_preserves_the_brightness(monkeypatch, slope, expected):
    """Here the mean image changes by `slope` for each unit of the scale; 0.1 is accepted."""
    net = network()
    grey = lambda n, change: torch.full((n, 1, 2, 2), 0.5 + change)  # noqa: E731
    monkeypatch.setattr(net.codec, "decode", lambda x: grey(len(x), 0))
    monkeypatch.setattr(net, "down", lambda h, c, scale, on: grey(len(h), slope * (scale - 1)))
    assert find_logit_scale(net, codes(net, 40)) == expected


@pytest.mark.parametrize(("slope", "expected"), [(0.04, 5), (0.08, 3), (0.15, 2), (0.5, 1.2), (2, 1)])
def test_the_logit_scale_preserves_the_shades(monkeypatch, slope, expected):
    """Here p (1 - p) is 1/4 - d^2 with d = slope (scale - 1), at the same brightness; .87 of 1/4 is accepted."""
    net = network()

    def images(count, d):
        light = torch.full((count // 2, 1, 2, 2), 0.5 + d)
        return torch.cat([light, 1 - light]).clamp(0, 1)

    monkeypatch.setattr(net.codec, "decode", lambda x: images(len(x), 0))
    monkeypatch.setattr(net, "down", lambda h, c, scale, on: images(len(h), slope * (scale - 1)))
    assert find_logit_scale(net, codes(net, 40)) == expected
