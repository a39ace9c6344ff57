"""Explaining an image by several capsules, against decoders whose best explanation is known."""

import copy
import itertools

import numpy as np
import pytest
import torch

from capspoe.config import Config
from capspoe.errors import InputError
from capspoe.infer import explain as E
from capspoe.run.model import CapsulePoE

J, N, SIDE = 6, 2, 12


def strokes():
    """Capsule j draws a soft stroke; its two numbers move it across and tilt it. Odd capsules are vertical."""
    y, x = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")

    def decode(capsule, pose):
        along, across = (torch.where(capsule[:, None, None] % 2 == 1, a, b) for a, b in ((y, x), (x, y)))
        centre = 2 + 3.5 * (capsule // 2).float()[:, None, None] + 0.6 * pose[:, 0, None, None]
        tilt = 0.05 * pose[:, 1, None, None] * (along - SIDE / 2)
        return torch.sigmoid(4 - 3 * (across - centre - tilt).square())[:, None]

    return decode


def scenes(pairs, seed=0):
    decode, pose = strokes(), torch.randn(len(pairs), 2, N, generator=torch.Generator().manual_seed(seed))
    capsule = torch.tensor(pairs)
    objects = decode(capsule.flatten(), pose.flatten(0, 1)).unflatten(0, capsule.shape)
    return objects.amax(1), objects, pose


def explained(images, k=2, compose=E.maximum):
    decode = strokes()
    decoders = (E.linear_decoder(decode, (J, N)), decode)
    return E.last(E.search_steps(decoders, images, (J, N), k, compose))


def test_every_pair_of_known_poses_is_recovered():
    pairs = list(itertools.combinations(range(J), 2))
    images, objects, _ = scenes(pairs)
    found = explained(images)
    order = found.capsule[:, 0].argsort(1)
    rows = torch.arange(len(pairs))[:, None]
    assert found.capsule[:, 0][rows, order].tolist() == [list(pair) for pair in pairs]
    assert (found.objects[:, 0][rows, order] - objects).square().mean() < 0.003


def test_the_result_does_not_depend_on_the_batch_or_the_run():
    images, _, _ = scenes([(0, 3), (2, 5), (1, 4)])
    together, again = explained(images), explained(images)
    alone = explained(images[1:2])
    assert all(torch.equal(a, b) for a, b in zip(together, again, strict=True))
    assert torch.equal(together.capsule[1, 0], alone.capsule[0, 0])
    assert torch.allclose(together.pose[1, 0], alone.pose[0, 0], atol=1e-3)


def test_the_linear_decoder_is_exact_where_the_logits_are_affine():
    maps = 0.5 * torch.randn(J, N + 1, 9, generator=torch.Generator().manual_seed(1))

    def decode(capsule, pose):
        return torch.sigmoid(maps[capsule, N] + torch.einsum("rn,rnp->rp", pose, maps[capsule, :N])).view(-1, 1, 3, 3)

    capsule, pose = torch.arange(J), torch.randn(J, N) / 2
    linear = E.linear_decoder(decode, (J, N))
    assert torch.allclose(linear(capsule, pose), decode(capsule, pose), atol=2e-3)


def test_a_shift_moves_the_image_by_whole_pixels():
    images = torch.rand(2, 1, 6, 8)
    white = torch.tensor([[0.0, 2.0, 0.0], [0.0, -1.0, 1.0]])  # in units of 2 / 2 pixels
    moved = E.shifted(lambda capsule, pose: images, 2.0)(torch.zeros(2, dtype=torch.long), white)
    expected = torch.zeros_like(images)
    expected[0, :, :, 2:] = images[0, :, :, :-2]
    expected[1, :, 1:, :-1] = images[1, :, :-1, 1:]
    assert torch.allclose(moved, expected, atol=1e-5)


def test_moved_strokes_are_found_where_they_are():
    """Every capsule of a pair is moved by two pixels, as none of its poses can."""
    images, _, _ = scenes([(0, 3), (2, 5)])
    moved = torch.zeros_like(images)
    moved[:, :, 2:] = images[:, :, :-2]
    decoders = (E.linear_decoder(strokes(), (J, N)), strokes())
    errors = [
        (
            E.last(E.search_steps(decoders, moved, (J, N), 2, search=E.Search(shift=shift))).objects[:, 0].amax(1)
            - moved
        )
        .square()
        .mean()
        for shift in (0.0, 3.0)
    ]
    assert errors[1] < errors[0] / 4


def test_fit_finds_the_optimum_of_a_quadratic():
    """-w |v - t|^2 - |v|^2 / 4 is largest at t w / (w + 1 / 4)."""
    target, w = torch.tensor([[0.7, -1.2], [2.0, 0.3]]), 3.0

    def likelihood(objects):
        return -w * (objects[..., 0, 0] - target[:, None, None]).square().sum((2, 3))

    capsule, start = torch.zeros(2, 1, 1, dtype=torch.long), torch.zeros(2, 1, 1, 2)
    decode = lambda capsule, pose: pose[:, :, None, None]  # noqa: E731
    steps = list(E.fit(decode, capsule, start, likelihood, 200, 0.1))
    assert len(steps) == 201
    assert torch.allclose(steps[-1].pose[:, 0, 0], target * w / (w + 0.25), atol=1e-3)


def test_compositions_and_responsibilities():
    front, back = torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 2, 2)
    front[0, 0, 0], back[0, 0, :, 0] = 0.6, 0.9  # a row before a column
    objects = torch.stack([front, back], 1)
    assert torch.equal(E.maximum(objects)[0, 0], torch.tensor([[0.9, 0.6], [0.9, 0.0]]))
    assert torch.equal(E.total(objects)[0, 0], torch.tensor([[1.0, 0.6], [0.9, 0.0]]))
    assert torch.allclose(E.occlusion(objects)[0, 0], torch.tensor([[0.6, 0.6], [0.9, 0.0]]), atol=0.02)
    owners = {"maximum": [[1, 0], [1, None]], "occlusion": [[0, 0], [1, None]]}
    for name, expected in owners.items():
        owner = E.responsibilities(objects, E.COMPOSITIONS[name])[0]
        assert torch.allclose(owner.sum(0), torch.ones(2, 2))
        for row, column in itertools.product(range(2), range(2)):
            if expected[row][column] is not None:
                assert owner[:, row, column].argmax() == expected[row][column]
    swapped = E.responsibilities(objects.flip(1), E.maximum)
    assert torch.equal(swapped, E.responsibilities(objects, E.maximum).flip(1))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return CapsulePoE.build(Config(channels=8, layers="4x3"), (12, 12, 1)).requires_grad_(False).eval()


def test_the_fast_decoder_is_the_network(model):
    capsule, white = torch.tensor([0, 3, 1]), torch.randn(3, 3)
    expected = model.decode_pose(capsule, model.prior.from_white(capsule, white), E.LOGIT_SCALE)
    assert torch.allclose(E.capsule_decoder(model)(capsule, white), expected, atol=1e-5)


def test_explanations_have_the_promised_shapes(model):
    images = np.random.default_rng(0).random((3, 12, 12, 1), np.float32)
    for k, compose in ((1, "maximum"), (2, "occlusion"), (3, "sum"), (None, "maximum")):
        found = model.explain(images, k, compose)
        width = k or 3
        assert found.capsule.shape == (3, width)
        assert found.objects.shape == (3, width, 12, 12, 1)
        assert found.owner.shape == (3, width, 12, 12)
        assert found.image.shape == (3, 12, 12, 1)
        assert ((found.capsule >= 0) == (found.probability > 0)).all()
        for row in found.capsule:
            present = row[row >= 0]
            assert len(present) >= 1
            assert len(set(present)) == len(present)


def test_dark_objects_on_a_light_background_are_explained_as_their_negatives(model):
    model = copy.deepcopy(model)
    up = model.codec.up_2
    up.bias.fill_(-1.0)
    images = 0.4 * np.random.default_rng(1).random((2, 12, 12, 1), np.float32)
    light = model.explain(images)
    assert not E.dark_ink(model)
    for weights in (up.weight, up.bias):  # sigmoid(-x) = 1 - sigmoid(x)
        weights.mul_(-1)
    dark = model.explain(1 - images)
    assert E.dark_ink(model)
    assert np.array_equal(light.capsule, dark.capsule)
    np.testing.assert_allclose(light.objects, 1 - dark.objects, atol=1e-3)
    np.testing.assert_allclose(light.image, 1 - dark.image, atol=1e-3)
    np.testing.assert_allclose(light.owner, dark.owner, atol=0.02)


def test_wrong_arguments_are_named(model):
    image = np.zeros((12, 12), np.float32)
    with pytest.raises(InputError, match="compose must be one of"):
        model.explain(image, 2, "difference")
    with pytest.raises(InputError, match="k must be at most 4"):
        model.explain(image, 5)
    with pytest.raises(InputError, match="k must be an integer"):
        model.explain(image, 0)


def test_log_odds_decide_between_capsules_that_draw_the_same():
    decode, images = strokes(), scenes([(0, 1), (1, 2), (0, 2)])[0]
    twins = lambda capsule, pose: decode(capsule % 3, pose)  # noqa: E731
    decoders = (E.linear_decoder(twins, (J, N)), twins)
    odds = torch.tensor([0.0, 0, 0, 1, 1, 1]).repeat(3, 1)
    for sign, expected in ((1, [[3, 4], [4, 5], [3, 5]]), (-1, [[0, 1], [1, 2], [0, 2]])):
        found = E.last(E.search_steps(decoders, images, (J, N), 2, log_odds=sign * odds))
        assert found.capsule[:, 0].sort(1).values.tolist() == expected
