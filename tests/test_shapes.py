"""The shapes on public signatures are true: each function is run under jaxtyping's checker."""

import pytest
import torch
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

from capspoe import contrastive, routing
from capspoe.autoencoder import ConvAutoencoder, from_capsules, to_capsules
from capspoe.capsules import CapsuleLayer
from capspoe.noise import Noise

B, I, M, J, N = 5, 4, 3, 2, 6


def checked(function):
    return jaxtyped(typechecker=beartype)(function)


def test_routing():
    x, W, h = torch.rand(B, I, M), torch.rand(J, I, N, M), torch.rand(B, J, N)
    assert checked(routing.route)(x, W).z.shape == (B, J, N)
    assert checked(routing.reverse_route)(h, W).z.shape == (B, I, M)
    assert checked(routing.squash)(h).shape == h.shape
    assert checked(routing.on_probability)(h).shape == (B, J)
    u = checked(routing.predictions)(x, W)
    assert checked(routing.agreement_of)(u, h, "cosine").shape == (B, J, I)


@pytest.mark.parametrize("gate", ["winner", "none"])
def test_layer_and_step(gate):
    layer = CapsuleLayer((I, M), (J, N), gate=gate)
    x = torch.rand(B, I, M)
    c, z = checked(CapsuleLayer.forward)(layer, x)
    on = torch.zeros(B, dtype=torch.int64)
    assert checked(CapsuleLayer.preactivation)(layer, x, c).shape == (B, J, N)
    h = checked(CapsuleLayer.hidden_given_visible)(layer, z)
    assert checked(CapsuleLayer.on_given_visible)(layer, z).shape == (B, J)
    assert checked(CapsuleLayer.visible_given_hidden)(layer, h, c).shape == (B, I, M)
    assert checked(CapsuleLayer.reverse)(layer, h).shape == (B, J, I)
    assert checked(CapsuleLayer.energy)(layer, x, h, c, on).shape == (B,)
    assert checked(CapsuleLayer.free_energy)(layer, x, c).shape == (B,)
    assert checked(CapsuleLayer.evidence)(layer, z).shape == (B, J)
    assert checked(contrastive.step)(layer, x, Noise.for_batch(B))[0].w_JNMI.shape == (J, N, M, I)


def test_autoencoder():
    network = ConvAutoencoder((20, 20, 3), 16)
    images = torch.rand(B, 3, 20, 20)
    x = checked(ConvAutoencoder.encode)(network, images)
    assert checked(ConvAutoencoder.decode)(network, x).shape == images.shape
    assert checked(ConvAutoencoder.loss)(network, images, Noise.for_batch(B)).shape == (B,)
    assert checked(to_capsules)(checked(from_capsules)(x, network.code_shape)).shape == x.shape


def test_the_checker_bites():
    with pytest.raises(TypeCheckError):
        checked(routing.route)(torch.rand(B, I, M), torch.rand(J, I + 1, N, M))
