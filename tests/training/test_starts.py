"""Where layers start: against scikit-learn's PCA and logistic regression, and every state enumerated."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from capspoe.infer.chains import PoseDensity
from capspoe.infer.likelihood import log_weight
from capspoe.model.codec import Codec
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.training.starts import LayerInputs, LogisticPCA, LowRankStart, MixtureStart, RandomStart
from capspoe.training.targets import GateTargets
from tiny import all_visible

COUNT = 600
FIRST_GROUP = 420  # images; its share is .7


class Six(Codec):
    """Codes of six units."""

    image = (1, 6, 1)
    capsules = (3, 2)


def inputs(neurons=2, **options):
    """Binary codes in two groups, of two latents each, and a layer of two capsules for them."""
    rng = np.random.default_rng(0)
    group = (np.arange(COUNT) >= FIRST_GROUP).astype(np.int32)
    latent_BN = rng.normal(size=(COUNT, 2))
    weights_JNV = 1.5 * rng.normal(size=(2, 2, 6))
    logits_BV = np.einsum("bn,bnv->bv", latent_BN, weights_JNV[group]) + np.array([[-0.5], [0.5]])[group]
    codes = (rng.random((COUNT, 6)) < 1 / (1 + np.exp(-logits_BV))).astype(np.float16)
    network = Network(Six(), [CapsuleLayer((3, 2), (2, neurons), iterations=1, seed=0, **options)])
    targets = GateTargets.of(torch.from_numpy(group), network, COUNT)
    return LayerInputs(network, 0, codes.reshape(COUNT, 3, 2), targets)


def own_codes(given, capsule):
    return given.at(np.flatnonzero(given.targets.capsule.numpy() == capsule))


@torch.no_grad()
@pytest.mark.parametrize("capsule", [0, 1])
def test_a_capsule_starts_as_the_logistic_pca_of_its_group(capsule):
    """Along the principal components, its way up and down is scikit-learn's logistic regression."""
    given = inputs()
    LowRankStart(ridge=0.1, steps=2000).begin(given)
    layer = given.layer
    x_nIM = own_codes(given, capsule)
    x_nV = x_nIM.flatten(1).double().numpy()
    t_nN = PCA(2, whiten=True).fit_transform(x_nV) * np.sqrt(len(x_nV) / (len(x_nV) - 1))
    h_nN = layer.preactivation(x_nIM, None)[:, capsule].double().numpy()
    w_NV = layer.w_JNMI[capsule].transpose(1, 2).flatten(1).double().numpy()
    np.testing.assert_allclose(h_nN.mean(0), 0, atol=1e-4)
    A_NN = h_nN.T @ t_nN / len(t_nN)  # h = A t, by least squares
    for unit in range(6):
        regression = LogisticRegression(C=1 / (0.1 * len(t_nN)), tol=1e-10).fit(t_nN, x_nV[:, unit])
        np.testing.assert_allclose(w_NV[:, unit] @ A_NN, regression.coef_[0], atol=2e-3)
        assert layer.a[capsule].flatten()[unit].item() == pytest.approx(regression.intercept_[0], abs=2e-3)


@torch.no_grad()
def test_capsules_start_as_probable_as_their_groups():
    given = inputs()
    LowRankStart().begin(given)
    layer = given.layer
    states = all_visible(layer).float()
    evidence_SJ = layer.log_evidence(layer.preactivation(states, None), states) + layer.d
    share = torch.softmax(torch.logsumexp(evidence_SJ, 0), 0)
    torch.testing.assert_close(share, given.targets.share, atol=0.03, rtol=0)


@torch.no_grad()
def test_codes_are_likelier_than_after_a_random_start():
    likelihood = {}
    for start in (RandomStart(), LowRankStart()):
        given = inputs()
        start.begin(given)
        likelihood[type(start)] = exact_likelihood(given)
    assert likelihood[LowRankStart] > likelihood[RandomStart] + 0.1


def exact_likelihood(given):
    """Mean log-likelihood of all codes, with Z summed over every state."""
    log_z = torch.logsumexp(log_weight(given.layer, all_visible(given.layer).float()), 0)
    return (log_weight(given.layer, given.at(np.arange(COUNT))).mean() - log_z).item()


def test_a_code_that_counts_twice_is_two_codes():
    x_nV = own_codes(inputs(), 0).flatten(1)[:40].double()
    twice = torch.cat([x_nV, x_nV[:15]])
    share_n = torch.ones(40, dtype=torch.float64)
    share_n[:15] = 2
    weighted = LogisticPCA.fit(x_nV, share_n / 55, 2, ridge=0.1, steps=200)
    repeated = LogisticPCA.fit(twice, torch.full((55,), 1 / 55, dtype=torch.float64), 2, ridge=0.1, steps=200)
    torch.testing.assert_close(weighted.a_V, repeated.a_V)
    # The sign of a component is free.
    torch.testing.assert_close(weighted.w_NV.T @ weighted.w_NV, repeated.w_NV.T @ repeated.w_NV)


@torch.no_grad()
def test_capsules_take_the_images_that_they_explain():
    """From groups of which a third is wrong, the exact likelihood rises."""
    likelihood = []
    for rounds in (0, 5):
        given = inputs()
        wrong = np.random.default_rng(1).random(COUNT) < 1 / 3
        mixed = torch.where(torch.from_numpy(wrong), 1 - given.targets.capsule, given.targets.capsule)
        given = LayerInputs(given.network, 0, given.codes, GateTargets.of(mixed, given.network, COUNT))
        MixtureStart(LowRankStart(), rounds).begin(given)
        likelihood.append(exact_likelihood(given))
    assert likelihood[1] > likelihood[0] + 0.02


@torch.no_grad()
def test_a_high_temperature_fits_every_capsule_to_all_images():
    given = inputs()
    MixtureStart(LowRankStart(), rounds=1, temperature=1e6).begin(given)
    first, second = given.layer.w_JNMI.flatten(2)
    torch.testing.assert_close(first.T @ first, second.T @ second, atol=1e-3, rtol=0)
    torch.testing.assert_close(given.layer.a[0], given.layer.a[1], atol=1e-3, rtol=0)


@pytest.mark.parametrize("options", [{"neurons": 9}, {"neurons": 2}])
def test_neurons_beyond_the_rank_of_a_group_keep_their_random_weights(options):
    given = inputs(**options)
    before = given.layer.w_JNMI.clone()
    LowRankStart().begin(given)
    changed = (given.layer.w_JNMI != before).flatten(2).any(-1)
    expected = torch.arange(options["neurons"]) < 6
    assert torch.equal(changed, expected.expand(2, -1))
    assert all(parameter.isfinite().all() for parameter in given.layer.parameters())


@pytest.mark.parametrize("options", [{"gate": "none"}, {"bias": False}])
def test_other_layers_start_at_random(options):
    given = inputs(**options)
    if options.get("gate") == "none":
        given = LayerInputs(given.network, 0, given.codes, None)
    before = given.layer.w_JNMI.clone()
    LowRankStart().begin(given)
    assert torch.equal(given.layer.w_JNMI, before)


@torch.no_grad()
def test_a_far_mode_is_found_and_avoided():
    """A pattern of forty pixels that no code shows, but that adds up to most of the mass."""
    w_NV = torch.cat([torch.full((1, 4), 0.5), torch.full((1, 40), 0.6)], 1)
    a_V = torch.tensor([0.0] * 4 + [-6.0] * 40)
    mean_V = torch.tensor([0.5] * 4 + [0.003] * 40)
    pca = LogisticPCA(w_NV, a_V, torch.tensor([[1.0]]))
    h = torch.linspace(-10, 40, 20_001)[:, None]
    log_density = PoseDensity(w_NV[None], a_V[None], -(w_NV @ mean_V)[None]).log_density(h[None])[0]
    mass = torch.softmax(log_density, 0)
    assert mass[h[:, 0] > 10].sum() > 0.9
    assert pca.has_far_mode(mean_V, seed=0)
    weaker = LogisticPCA(w_NV * 0.3, a_V, torch.tensor([[0.1]]))
    assert not weaker.has_far_mode(mean_V, seed=0)
