"""Samples of a trained run: what they depend on, and both priors written out."""

import itertools

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.errors import InputError
from capspoe.infer.sample import equilibrium, gibbs_step, r_hat, sample
from capspoe.model.build import build_network
from capspoe.model.gates import only, place
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.prior import Sampling
from capspoe.run.model import CapsulePoE


def test_samples_depend_on_the_seed_and_their_number_alone(model):
    whole, few = model.sample(600, seed=3), sample(model, 7, seed=3)
    assert whole.images.shape == (600, 28, 28, 1)
    assert whole.images.dtype == np.float32
    assert 0 <= whole.images.min() < whole.images.max() <= 1
    np.testing.assert_allclose(few.images, whole.images[:7], atol=1e-6)
    assert np.array_equal(few.capsule, whole.capsule[:7])
    assert not np.allclose(model.sample(7, seed=4).images, few.images)


def test_capsules_are_chosen_in_proportion_to_their_use_or_by_number(model):
    """In any stretch of the samples, where independent draws would be off by about 8 of 300."""
    use = model.prior.use.numpy()
    chosen = [model.sample(300, seed=seed).capsule for seed in (1, 2)]
    for capsule in (*chosen, chosen[0][37:137]):
        count = np.bincount(capsule, minlength=len(use))
        assert np.abs(count - len(capsule) * use).max() < 3
    assert not np.array_equal(*chosen)
    assert set(model.sample(5, capsule=2).capsule) == {2}
    cycle = model.sample(np.int64(260), capsule=np.array([3, 1, 0])).capsule
    assert list(cycle) == [(3, 1, 0)[k % 3] for k in range(260)]


@torch.no_grad()
def test_the_papers_prior(model):
    """One capsule on, its neurons sigmoid(N(0, 1)), the others 0, uniform weights, no logit scale."""
    found = model.sample(6, capsule=1, prior="standard", seed=2)
    h = torch.zeros(6, 4, 6)
    h[:, 1] = torch.sigmoid(Noise(2, 0, torch.arange(6)).normal(102, 6))
    I = model.top.lower[0]
    expected = model.codec.decode(model.top.visible_mean(h, torch.full((6, 4, I), 1 / I)))
    np.testing.assert_allclose(found.images, model.array(expected), atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("neurons", ["gaussian", "binary"])
def test_the_fitted_prior(model, neurons):
    """z is drawn from the mixture of the capsule; the pose is its mean given z."""
    if neurons == "binary":
        model = CapsulePoE.build(model.config.replace(neurons="binary"), model.image).eval()
    found = model.sample(6, capsule=1, prior="fitted", seed=2, prior_scale=0.7)
    z = model.prior.sample(torch.ones(6, dtype=torch.int64), Noise(2, 0, torch.arange(6)), 0.7)
    h = torch.zeros(6, 4, 6)
    h[:, 1] = z if neurons == "gaussian" else torch.sigmoid(z)
    np.testing.assert_allclose(found.images, model.array(model.down(h)), atol=1e-5)
    own = model.sample(6, capsule=1, seed=2, prior_scale=float(model.prior.scale))
    assert np.array_equal(own.images, model.sample(6, capsule=1, seed=2).images)


def test_a_logit_scale_that_was_set_counts_for_the_papers_prior_too(model, monkeypatch):
    plain = model.sample(5, prior="standard").images
    monkeypatch.setattr(model, "sampling", Sampling(logit_scale=3.0))
    scaled = model.sample(5, prior="standard").images
    assert not np.allclose(scaled, plain, atol=1e-3)
    monkeypatch.setattr(model, "sampling", Sampling(logit_scale=1.0))
    np.testing.assert_array_equal(model.sample(5, prior="standard").images, plain)


@torch.no_grad()
@pytest.mark.parametrize("prior", ["standard", "fitted"])
def test_gibbs_steps(model, prior):
    """The chain that is trained: x drawn with the weights of the last way up, h drawn; the same capsule stays on."""
    found = model.sample(5, capsule=0, gibbs=2, seed=4, prior=prior)
    rows, top = torch.arange(5), model.top
    noise, on = Noise(4, 0, rows), torch.zeros(5, dtype=torch.int64)
    h = torch.zeros(5, 4, 6)
    if prior == "standard":
        h[:, 0] = torch.sigmoid(noise.normal(102, 6))
    else:
        h[:, 0] = model.prior.sample(on, noise)
    c = None
    for step in (1, 2):
        noise = Noise(4, step, rows)
        x = (noise.uniform(0, *top.lower) < top.visible_mean(h, c, on)).float()
        c, z = top(x)
        h = torch.zeros_like(h)
        h[:, 0] = top.sample_hidden(z, noise, 1)[:, 0]
    images = model.array(model.down(h, c, 1.0, on))
    np.testing.assert_allclose(found.images, images, atol=1e-4)
    assert set(found.capsule) == {0}


@torch.no_grad()
def test_a_gibbs_step_without_the_gate_takes_all_capsules_along():
    """The chain that is trained has all capsules on; clamping all but one at 0 is another model."""
    network = build_network(Config(channels=8, layers="4x6", gate="none", gate_targets="none"), (12, 12, 1))
    h = torch.zeros(5, 4, 6)
    h[:, 1] = 1.0
    on = torch.ones(5, dtype=torch.int64)
    noise = Noise(4, 1, torch.arange(5))
    c, new = gibbs_step(network.top, h, None, on, noise)
    x = (noise.uniform(0, *network.top.lower) < network.top.visible_mean(h, None)).float()
    expected = network.top(x)
    torch.testing.assert_close(c, expected.c)
    torch.testing.assert_close(new, network.top.sample_hidden(expected.z, noise, 1))
    assert (new != 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be"),
        ({"count": 3, "capsule": 4}, "capsule must be below 4"),
        ({"count": 3, "capsule": -1}, "capsule must be"),
        ({"count": 3, "capsule": []}, "empty list"),
        ({"count": 3, "capsule": [1.5]}, "capsule must be an integer"),
        ({"count": 3, "capsule": True}, "capsule must be an integer"),
        ({"count": 3, "seed": 2**70}, "seed must be an integer between"),
        ({"count": 3, "seed": 0.5}, "seed must be"),
        ({"count": 3, "prior": "flat"}, "prior must be one of"),
        ({"count": 3, "gibbs": -1}, "gibbs must be"),
        ({"count": 3, "prior_scale": -1.0}, "prior_scale must be between"),
    ],
)
def test_wrong_requests_are_named(model, arguments, message):
    with pytest.raises(InputError, match=message):
        model.sample(**arguments)


@pytest.mark.parametrize("neurons", ["binary", "gaussian"])
def test_a_gibbs_step_without_routing_leaves_the_distribution_invariant(neurons):
    """From exact draws of x within a capsule, the codes of the next step have the enumerated distribution."""
    layer = CapsuleLayer((3, 2), (2, 2), iterations=1, neurons=neurons, initial_std=0.8, seed=1, dtype=torch.float64)
    with torch.no_grad():
        layer.a.copy_(0.5 * torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0)))
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=torch.float64).view(-1, 3, 2)
    with torch.no_grad():
        p = torch.softmax(layer.log_evidence(layer(states).z, states)[:, 1], 0)
        n, rng = 40_000, torch.Generator().manual_seed(0)
        x = states[torch.multinomial(p, n, replacement=True, generator=rng)]
        on = torch.ones(n, dtype=torch.int64)
        start = Noise.for_batch(n, dtype=torch.float64)
        h = only(layer.sample_hidden(layer.hidden_mean(layer(x).z), start, 7), on)
        for step in (1, 2):
            _, h = gibbs_step(layer, h, None, on, Noise(0, step, torch.arange(n), torch.float64))
        x = layer.visible_mean(h, None, on)
    torch.testing.assert_close(x.mean(0), torch.einsum("s,sim->im", p, states), atol=0.01, rtol=0)


@torch.no_grad()
def test_equilibrium_poses_have_the_law_of_the_energy():
    """Their codes' means are those of P(x | capsule j is on), by enumeration; each image has its own chain."""
    layer = CapsuleLayer((3, 2), (2, 2), iterations=1, initial_std=0.8, seed=1)
    layer.a.copy_(0.5 * torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0)))
    states = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6))).view(-1, 3, 2)
    p = torch.softmax(layer.log_evidence(layer(states).z, states), 0)
    on = torch.arange(9000) % 3 % 2
    h = equilibrium(layer, on, Noise.for_batch(9000, seed=3), 30)
    x = layer.visible_mean(place(h, on, 2), None, on)
    for j in range(2):
        torch.testing.assert_close(x[on == j].mean(0), torch.einsum("s,sim->im", p[:, j], states), atol=0.02, rtol=0)
    # A short chain: long ones amplify rounding.
    together = equilibrium(layer, on, Noise.for_batch(9000, seed=3), 2)
    alone = equilibrium(layer, on[5:7], Noise(3, 0, torch.arange(5, 7)), 2)
    torch.testing.assert_close(alone, together[5:7], atol=1e-3, rtol=0)


def test_the_models_own_samples(model):
    found = model.sample(6, prior="model", seed=1)
    assert found.images.shape == (6, 28, 28, 1)
    assert not np.allclose(found.images, model.sample(6, seed=1).images)
    assert (r_hat(model.top) < 3).all()
    bare = build_network(model.config.replace(neurons="binary"), model.image)
    with pytest.raises(InputError, match="gaussian neurons"):
        sample(bare, 1, prior="model")
