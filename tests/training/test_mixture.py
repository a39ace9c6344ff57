"""Capsules that learn as a mixture (`--start mixture`), against every state enumerated."""

import itertools

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.infer.likelihood import LogZ, log_integrals, log_weight
from capspoe.model.build import build_network
from capspoe.model.codec import Codec
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.prior import CapsulePrior
from capspoe.training.build import build_stages
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.pcd import SCORED, PersistentChains
from capspoe.training.stage import Schedule, Training
from capspoe.training.starts import LowRankStart, MixtureStart
from tiny import F64, all_visible, tiny_layer

COUNT = 600
STEPS = 600


class Six(Codec):
    """Codes of six units."""

    image = (1, 6, 1)
    capsules = (3, 2)


class HalfWrong:
    """Groups of which a third belongs to the other one."""

    def find(self, training):
        wrong = np.random.default_rng(1).random(COUNT) < 1 / 3
        return torch.from_numpy((np.arange(COUNT) >= 420) ^ wrong).int()


def training():
    """Binary codes: two groups of 420 and 180, of one latent each."""
    rng = np.random.default_rng(0)
    group = (np.arange(COUNT) >= 420).astype(np.int32)
    weights_JV = 1.5 * rng.normal(size=(2, 6))
    logits_BV = rng.normal(size=(COUNT, 1)) * weights_JV[group] + np.array([[-1.5], [1.5]])[group]
    codes = (rng.random((COUNT, 6)) < 1 / (1 + np.exp(-logits_BV))).astype(np.float16).reshape(COUNT, 3, 2)
    network = Network(Six(), [CapsuleLayer((3, 2), (2, 1), iterations=1, seed=0)])
    return Training(network, None, lambda: codes)


def mixture_stage(network):
    return CapsuleStage(
        0,
        Schedule(1),
        PersistentChains(network.top, 40, seed=0),
        HalfWrong(),
        learning_rate=0.01,
        start=MixtureStart(LowRankStart(ridge=0.3), rounds=1),
        follow_targets=False,
    )


class Exact:
    """Sums over all 64 states."""

    def __init__(self, given):
        self.layer = given.network.top
        self.x = torch.from_numpy(given.codes).float()
        states = all_visible(self.layer).float()
        evidence_SJ = self.layer.log_evidence(self.layer.preactivation(states, None), states) + self.layer.d
        self.log_z_J = torch.logsumexp(evidence_SJ, 0)

    def log_likelihood(self, x):
        return (log_weight(self.layer, x).mean() - torch.logsumexp(self.log_z_J, 0)).item()

    def shares(self):
        return torch.softmax(self.log_z_J, 0)

    def use(self):
        return self.layer.on_probability(self.layer(self.x).z, self.x, 1.0).mean(0)


@torch.no_grad()
def test_a_mixture_learns_by_its_likelihood_where_targets_are_wrong():
    given = training()
    stage = mixture_stage(given.network)
    stage.begin(given, 0, {})
    # A capsule that is far too probable: the gate's bias must find back.
    given.network.top.d.add_(torch.tensor([1.0, -1.0]))
    x = torch.from_numpy(given.codes).float()
    before = Exact(given).log_likelihood(x)
    metrics = [step.metrics for step in stage.run(given, 0, STEPS)]
    after = Exact(given)
    # It rises by .123 if the targets are followed, and by .120 if the gate's bias stays or moves the wrong way.
    assert after.log_likelihood(x) > before + 0.13
    # At the maximum each capsule is as probable as it is used.
    torch.testing.assert_close(after.shares(), after.use(), atol=0.03, rtol=0)
    # The log of training tells the exact likelihood, of every fourth image.
    scored = after.log_likelihood(x[::SCORED])
    for name in ("log_likelihood_lower", "log_likelihood_upper"):
        late = np.mean([line[name] for line in metrics[-200:]])
        assert late == pytest.approx(scored, abs=0.03)


def test_a_mixture_resumes_bit_for_bit():
    whole = training()
    stage = mixture_stage(whole.network)
    stage.begin(whole, 0, {})
    metrics = [step.metrics for step in stage.run(whole, 0, 30)]
    for first_part in (5, 16):
        given = training()
        stage = mixture_stage(given.network)
        stage.begin(given, 0, {})
        resumed = [step.metrics for step in itertools.islice(stage.run(given, 0, 30), first_part)]
        state = {name: value.clone() for name, value in stage.state().items()}
        stage = mixture_stage(given.network)
        stage.begin(given, first_part, state)
        resumed += [step.metrics for step in stage.run(given, first_part, 30)]
        assert resumed == metrics
        expected = whole.network.state_dict()
        assert all(torch.equal(value, expected[name]) for name, value in given.network.state_dict().items())


@torch.no_grad()
def test_the_probability_of_each_capsule_is_the_sum_over_all_states():
    layer = tiny_layer(neurons="gaussian", iterations=1)
    states = all_visible(layer)
    evidence_SJ = layer.log_evidence(layer.preactivation(states, None), states) + layer.d
    low, high = log_integrals(layer, CapsulePrior(2, 2, 1).double())
    shares = LogZ.shares(layer, (low + high) / 2)
    assert shares.dtype == F64
    torch.testing.assert_close(shares, torch.softmax(torch.logsumexp(evidence_SJ, 0), 0), atol=0.01, rtol=0)


@torch.no_grad()
def test_a_mixture_start_tells_which_images_are_whose():
    given = training()
    stage = mixture_stage(given.network)
    stage.begin(given, 0, {})
    # The chains start at these images: their mean is that of the posterior poses.
    layer = given.network.top
    x = torch.from_numpy(given.codes).float()
    winner = layer.on_probability(layer(x).z, x, 1.0).argmax(1)
    z = layer(x).z[torch.arange(COUNT), winner]
    for j in range(2):
        assert stage.update.ladder.mean[j].item() == pytest.approx(z[winner == j].mean().item(), abs=1e-4)


def test_settings_of_a_mixture():
    config = Config(codec="pixels", layers="3x4", start="mixture")
    network = build_network(config, (8, 8, 1))
    stages = build_stages(config, network)
    assert [stage.name for stage in stages] == ["capsules-0", "prior"]
    capsules, prior = stages
    assert isinstance(capsules.start, MixtureStart)
    assert not capsules.follow_targets
    assert prior.targets is None
    # Layers that cannot start so learn from targets as always.
    other = config.replace(neurons="binary")
    capsules, prior, recognition = build_stages(other, build_network(other, (8, 8, 1)))
    assert capsules.follow_targets
    assert prior.targets is not None
    assert recognition.name == "recognition"
