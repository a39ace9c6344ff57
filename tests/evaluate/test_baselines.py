"""The models of the table."""

import itertools

import numpy as np
import pytest
import torch

from capspoe.evaluate import baselines
from capspoe.evaluate.baselines import literal_config, sample_rbm, variant, variants
from capspoe.evaluate.data import EvaluationData
from capspoe.model.layer import CapsuleLayer


def test_a_variant_without_changes_is_the_run(data):
    """It trains exactly as `capspoe train` does, and leaves the network alone."""
    before = {name: value.clone() for name, value in data.network.state_dict().items()}
    same = variant(data.network, data.train.codes, data.train.pixels).state_dict()
    for name, value in data.network.state_dict().items():
        assert torch.equal(value, before[name])
        torch.testing.assert_close(same[name], value)


def test_a_variant_has_the_same_autoencoder_and_other_capsules(data):
    other = variant(data.network, data.train.codes[:64], iterations=1, epochs=1)
    assert other.top.iterations == 1
    assert torch.equal(other.codec.down_1.weight, data.network.codec.down_1.weight)
    assert not torch.equal(other.top.w_JNMI, data.network.top.w_JNMI)


def test_settings_of_sampling_need_no_training(data, monkeypatch):
    monkeypatch.setattr(baselines, "fit", lambda *_, **__: pytest.fail("trained"))
    scaled = variant(data.network, data.train.codes, prior_scale=1.0)
    assert torch.equal(scaled.prior.weight, data.network.prior.weight)
    images = baselines.output(scaled, data, "fitted", probed=False).images
    np.testing.assert_array_equal(images, data.network.sample(10, prior_scale=1.0).images)
    simple = variant(data.network, data.train.codes, prior_components=1)
    assert simple.prior.weight[:, 0].tolist() == [1] * 4
    assert torch.equal(simple.top.w_JNMI, data.network.top.w_JNMI)


def test_variants_are_those_that_differ(data, monkeypatch):
    def names(quick, ablate):
        return [next(iter(rows)) for rows in variants(data, quick, ablate)]

    slow = ["binary neurons with the gate", "one routing iteration"]
    assert names(True, False) == []
    assert names(False, False) == slow
    assert names(True, True) == list(baselines.ABLATIONS)
    assert sorted(names(False, True)) == sorted({*slow, *baselines.ABLATIONS})
    monkeypatch.setattr(data.network, "config", data.network.config.replace(iterations=1, prior_scale=1.0))
    assert names(False, False) == ["binary neurons with the gate", "three routing iterations"]
    assert {"one routing iteration", "prior scale 1"}.isdisjoint(names(True, True))


def test_literal_is_the_paper_at_the_size_of_the_run(data):
    c = literal_config(data.network.config)
    assert (c.gate, c.neurons, c.bias, c.centred, c.prior) == ("none", "binary", False, False, "standard")
    assert (c.channels, c.layers, c.limit, c.batch_size, c.code_noise) == (16, "4x6", 256, 32, 0)


@pytest.mark.parametrize("seed", [-1, 2**40])
def test_slow_baselines_take_any_seed(data, seed):
    other = EvaluationData(data.network, samples=5, seed=seed)
    other.train, other.test = data.train.spread(60), data.test.spread(20)
    made = [make() for rows in baselines.SLOW for make in rows(other).values()]
    for images, winner, features in made:
        assert images.shape == (5, 12, 12, 1)
        assert 0 <= images.min() <= images.max() <= 1
        assert winner is None or set(winner) <= {0, 1, 2, 3}
        assert features is None or np.isfinite(features(other.test)).all()


def test_the_mixture_of_a_vae_needs_no_other_row(data):
    """It used to draw from an untrained network unless the plain row had been made before."""
    other = EvaluationData(data.network, samples=5)
    other.train, other.test = data.train.spread(60), data.test.spread(20)
    alone = list(baselines.vae(other).values())[1]()
    first, second = baselines.vae(other).values()
    first()
    np.testing.assert_allclose(alone.images, second().images, atol=1e-6)


def test_an_rbm_samples_its_distribution():
    """The mean of the visible means is the exact marginal, by enumeration."""
    layer = CapsuleLayer.rbm(3, 2, initial_std=2.0, seed=3)
    with torch.no_grad():
        layer.a.copy_(torch.tensor([[1.0], [-2.0], [1.5]]))
        layer.b.copy_(torch.tensor([[-1.0], [1.0]]))
    x = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)))[..., None]
    with torch.no_grad():
        p = torch.softmax(-layer.free_energy(x, None), 0)
    expected = (p[:, None] * x[..., 0]).sum(0).numpy()
    np.testing.assert_allclose(sample_rbm(layer, 20_000, 30, seed=0).mean(0), expected, atol=0.01)
