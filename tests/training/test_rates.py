"""Learning rates that persistent chains can follow."""

import math

import numpy as np
import pytest
import torch
from tests.training.test_mixture import Six

from capspoe.errors import DivergedError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.fit import run_stages
from capspoe.training.pcd import STABLE_RATE, PersistentChains
from capspoe.training.stage import Schedule, Training
from capspoe.training.starts import LowRankStart

COUNT, UNITS = 400, 1500


class Many(Six):
    """So many units that the poses of capsules which explain them are wide."""

    capsules = (UNITS, 1)


class TwoGroups:
    def find(self, training):
        return torch.from_numpy(np.arange(COUNT) % 2).int()


def wide_training(messages=None):
    """Codes whose units all follow four latents."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(COUNT, 4)) @ rng.normal(size=(4, UNITS)) * 2
    codes = (rng.random(logits.shape) < 1 / (1 + np.exp(-logits))).astype(np.float16)[..., None]
    network = Network(Many(), [CapsuleLayer(Many.capsules, (2, 4), iterations=1, seed=0)])
    return Training(network, None, lambda: codes, info=[].append if messages is None else messages.append)


def stage_of(network, rate=0.02):
    update = PersistentChains(network.top, 8, seed=0)
    return CapsuleStage(0, Schedule(10, 40), update, TwoGroups(), learning_rate=rate, start=LowRankStart())


def test_wide_poses_take_a_lower_rate_and_say_so(monkeypatch):
    messages = []
    training = wide_training(messages)
    run_stages(training, [stage_of(training.network)])
    assert training.network.top.w_JNMI.isfinite().all()
    assert [line for line in messages if line.startswith("the learning rate starts at")]
    # The same steps without the limit end in a clear error.
    training = wide_training()
    with monkeypatch.context() as patch:
        patch.setattr(PersistentChains, "largest_rate", lambda update, share: math.inf)
        with pytest.raises(DivergedError, match=r"training diverged at step \d+: .*lower --learning-rate"):
            run_stages(training, [stage_of(training.network)])


def test_a_rate_below_the_limit_stays():
    messages = []
    training = wide_training(messages)
    stage = stage_of(training.network, rate=1e-6)
    run_stages(training, [stage])
    assert messages == []
    assert stage._ascent.param_groups[0]["lr"] == pytest.approx(1e-6 / 100)  # of the last of 100 steps


def test_the_limit_is_that_of_the_widest_poses():
    update = PersistentChains(CapsuleLayer((5, 1), (2, 2), iterations=1), 3)
    share = torch.tensor([0.25, 0.75])
    assert update.largest_rate(share) == math.inf  # before training the width is not known
    training = wide_training()
    stage = stage_of(training.network)
    stage.begin(training, 0, {})
    widths = torch.stack([torch.eye(4), torch.eye(4)])
    widths[0, 2, 2] = 9.0
    stage.update.ladder.covariance = widths
    assert stage.update.largest_rate(share) == pytest.approx(STABLE_RATE / (0.25 * 9))
    widths[0] = torch.eye(4)
    assert stage.update.largest_rate(share) == pytest.approx(STABLE_RATE / 0.75)
    # Two capsules: the gradient has a gain of the square root of 2.
    assert stage.largest_rate(training.network.top) == pytest.approx(STABLE_RATE / 0.5 / math.sqrt(2))


def test_poses_that_grow_without_bound_are_a_divergence(monkeypatch):
    """A matrix that has no decomposition is no error of the program."""
    training = wide_training()
    stage = stage_of(training.network)

    def step(*arguments):
        return torch.linalg.cholesky(-torch.eye(2))

    monkeypatch.setattr(stage.update, "step", step)
    with pytest.raises(DivergedError, match="training diverged at step 1: the poses grow without bound; lower"):
        run_stages(training, [stage])
