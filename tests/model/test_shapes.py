"""The shapes in public signatures are right: each function runs under jaxtyping's checker."""

import pytest
import torch
from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

from capspoe.config import Config
from capspoe.model import routing
from capspoe.model.build import build_network
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.training.cd import ContrastiveDivergence

B, I, M, J, N = 5, 4, 3, 2, 6


def checked(function):
    return jaxtyped(typechecker=beartype)(function)


@pytest.mark.parametrize("gate", ["winner", "none"])
def test_layer_and_step(gate):
    layer = CapsuleLayer((I, M), (J, N), gate=gate)
    x = torch.rand(B, I, M)
    c, z = checked(CapsuleLayer.forward)(layer, x)
    on = torch.zeros(B, dtype=torch.int64)
    assert checked(CapsuleLayer.preactivation)(layer, x, c).shape == (B, J, N)
    h = checked(CapsuleLayer.hidden_mean)(layer, z)
    assert checked(CapsuleLayer.on_probability)(layer, z, x).shape == (B, J)
    assert checked(CapsuleLayer.visible_mean)(layer, h, c, on).shape == (B, I, M)
    assert gate == "winner" or checked(CapsuleLayer.reverse)(layer, h).shape == (B, J, I)
    assert checked(CapsuleLayer.energy)(layer, x, h, c, on).shape == (B,)
    assert checked(CapsuleLayer.free_energy)(layer, x, c).shape == (B,)
    assert checked(CapsuleLayer.log_evidence)(layer, z, x).shape == (B, J)
    update = ContrastiveDivergence()
    assert checked(ContrastiveDivergence.step)(update, layer, x, Noise.for_batch(B))[0].w_JNMI.shape == (J, N, M, I)


def test_network():
    network = build_network(Config(channels=8, layers="3x4,2x6"), (12, 12, 1))
    up = checked(Network.up)(network, torch.rand(B, 1, 12, 12))
    assert up.x.shape == (B, 3, 4)
    assert checked(Network.down)(network, up.state, up.c).shape == (B, 1, 12, 12)
    assert checked(Network.decode_pose)(network, up.winner, up.z[:, 0]).shape == (B, 1, 12, 12)


def test_the_checker_bites():
    with pytest.raises(TypeCheckError):
        checked(routing.route)(torch.rand(B, I, M), torch.rand(J, I + 1, N, M))
