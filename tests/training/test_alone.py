"""Contrastive divergence with a reconstruction of its own for each capsule, against autograd of the energy."""

import pytest
import torch

from capspoe.config import Config
from capspoe.errors import InputError
from capspoe.model.gates import only
from capspoe.model.noise import Noise
from capspoe.training.alone import CapsulePairs, CapsulesAlone
from capspoe.training.build import capsule_update
from capspoe.training.cd import ContrastiveDivergence
from tiny import F64, tiny_layer

COUNT = 9


def written_out(layer, x, noise, k, sample_hidden, sample_visible, pair=False):
    """Gradients of E(x', h') - E(x, h) where only capsule j is not 0, added over j; and the mean squared error."""
    J = layer.upper[0]
    c, z = (tensor.detach() for tensor in layer(x))
    loss = 0.0
    error = 0.0
    for j in range(J):
        on = torch.full((len(x),), j)
        h_pos = mean = only(layer.hidden_mean(z), on).detach()
        for step in range(k):
            stream = 1 + 2 * (step * J + j)
            h = mean
            if sample_hidden:
                h = torch.zeros_like(mean)
                h[:, j] = layer.neurons.sample(mean[:, j], noise, stream)
            y = layer.visible_mean(h, c).detach()
            if pair:
                y = torch.sigmoid(torch.einsum("jinm,bjn->bim", layer.W, h) + layer.a).detach()
            if sample_visible:
                y = (noise.uniform(stream + 1, *layer.lower) < y).to(y)
            mean = only(layer.hidden_mean(layer.preactivation(y, c)), on).detach()
        loss = loss + (layer.energy(y, mean, c) - layer.energy(x, h_pos, c)).mean()
        error += (x - y).square().mean() / J
    return torch.autograd.grad(loss, (layer.w_JNMI, layer.a, layer.b)), error


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("neurons", ["binary", "gaussian"])
@pytest.mark.parametrize("sampled", [False, True])
def test_a_step_is_autograd_of_the_energies_of_single_capsules(iterations, neurons, sampled, rng):
    layer = tiny_layer("none", neurons, iterations=iterations)
    x = torch.rand(COUNT, 3, 2, generator=rng, dtype=F64)
    noise = Noise.for_batch(COUNT, dtype=F64, seed=5)
    gradients, info = CapsulesAlone(2, sample_hidden=sampled, sample_visible=sampled).step(layer, x, noise)
    (w, a, b), error = written_out(layer, x, noise, 2, sampled, sampled)
    torch.testing.assert_close(gradients.w_JNMI, w)
    torch.testing.assert_close(gradients.a, a / layer.upper[0])
    torch.testing.assert_close(gradients.b, b)
    torch.testing.assert_close(info.reconstruction, error)


@pytest.mark.parametrize("iterations", [1, 3])
def test_a_pair_has_no_routing_weight_on_the_way_down(iterations, rng):
    layer = tiny_layer("none", iterations=iterations)
    x = torch.rand(COUNT, 3, 2, generator=rng, dtype=F64)
    noise = Noise.for_batch(COUNT, dtype=F64, seed=5)
    gradients, info = CapsulePairs(2).step(layer, x, noise)
    (w, a, b), error = written_out(layer, x, noise, 2, True, False, pair=True)
    torch.testing.assert_close(gradients.w_JNMI, w / layer.fan)  # w = W / fan
    torch.testing.assert_close(gradients.a, a / layer.upper[0])
    torch.testing.assert_close(gradients.b, b)
    torch.testing.assert_close(info.reconstruction, error)


def test_with_one_capsule_it_is_contrastive_divergence(rng):
    layer = tiny_layer("none", upper=(1, 3))
    x = torch.rand(COUNT, 3, 2, generator=rng, dtype=F64)
    noise = Noise.for_batch(COUNT, dtype=F64)
    alone, _ = CapsulesAlone(sample_hidden=False).step(layer, x, noise)
    together, _ = ContrastiveDivergence(sample_hidden=False).step(layer, x, noise)
    torch.testing.assert_close(tuple(alone), tuple(together))


def test_settings_choose_it_for_layers_without_a_gate():
    config = Config(reconstruction="alone", hidden_states="mean", visible_states="drawn", cd_steps=2)
    assert capsule_update(config, tiny_layer("none"), True) == CapsulesAlone(2, False, True)
    pair = capsule_update(config.replace(reconstruction="pair"), tiny_layer("none"), True)
    assert type(pair) is CapsulePairs
    assert isinstance(capsule_update(config, tiny_layer("winner"), True), ContrastiveDivergence)


def test_a_gate_is_refused():
    with pytest.raises(InputError, match="with the gate a capsule reconstructs alone anyway"):
        CapsulesAlone().step(tiny_layer("winner"), torch.zeros(1, 3, 2, dtype=F64), Noise.for_batch(1, dtype=F64))
