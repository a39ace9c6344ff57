"""Traversals in whitened coordinates: one moves, the rest stay."""

import numpy as np
import pytest
import torch

from capspoe.errors import InputError
from capspoe.infer.traverse import decode_poses, traverse

AT = np.array([-2.0, 0.0, 1.0])


def test_principal_axes_are_whitened_coordinates(model):
    z = traverse(model, 1, "principal", AT, starts=300)
    assert z.shape == (6, 300, 3, 6)
    capsule = torch.ones(5400, dtype=torch.int64)
    white = model.prior.to_white(capsule, z.reshape(5400, 6)).reshape(6, 300, 3, 6).numpy()
    for k in range(6):
        np.testing.assert_allclose(white[k, ..., k], np.tile(AT, (300, 1)), atol=1e-3)
        rest = np.delete(white[k], k, axis=-1)
        np.testing.assert_allclose(rest, np.repeat(rest[:, :1], 3, 1), atol=1e-3)
        assert not np.abs(rest[0]).max() > 1e-3  # the first start is the prior's mean
        assert rest[1:].std() == pytest.approx(0.7, rel=0.1)


def test_neurons_move_by_their_own_standard_deviation(model):
    z = traverse(model, 2, "neurons", AT, starts=3)
    start = z[0, :, 1]  # where the position is 0
    torch.testing.assert_close(start[0], model.prior.centre[2])
    deviation = (model.prior.axes[2] @ model.prior.axes[2].T).diagonal().sqrt()
    for k in range(6):
        expected = start[:, None].repeat(1, 3, 1)
        expected[..., k] += torch.from_numpy(AT).float() * deviation[k]
        torch.testing.assert_close(z[k], expected, rtol=1e-4, atol=1e-4)


def test_starts_belong_to_the_seed_and_the_capsule(model):
    one, same, other = (traverse(model, 0, starts=4, seed=s) for s in (1, 1, 2))
    assert one.shape == (6, 4, 11, 6)
    assert torch.equal(one, same)
    assert torch.equal(one[:, 0], other[:, 0])
    assert not torch.equal(one[:, 1], other[:, 1])


def test_decode_poses(model):
    z = traverse(model, 3, at=AT, starts=2)
    images = decode_poses(model, 3, z)
    assert images.shape == (6, 2, 3, 28, 28, 1)
    h = np.zeros((1, 4, 6), np.float32)
    h[0, 3] = z[5, 1, 2]
    np.testing.assert_allclose(images[5, 1, 2], model.decode(h)[0], atol=1e-5)


@pytest.mark.parametrize("wrong", [{"capsule": 4}, {"capsule": 0, "basis": "axes"}, {"capsule": 0, "starts": 0}])
def test_wrong_arguments_are_named(model, wrong):
    with pytest.raises(InputError, match=list(wrong)[-1]):
        traverse(model, **wrong)
