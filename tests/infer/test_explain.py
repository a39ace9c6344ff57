"""Explaining an image by several capsules, against decoders whose best explanation is known."""

import copy
import itertools
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from capspoe.config import Compose, Config
from capspoe.errors import InputError
from capspoe.infer import explain as E
from capspoe.infer.polarity import Polarity
from capspoe.model.build import build_network
from capspoe.model.features import FeatureCode
from capspoe.model.recognition import Recognised, Recognition
from capspoe.run.model import CapsulePoE

J, N, SIDE = 6, 2, 12


def strokes(capsule, pose):
    """Capsule j draws a soft stroke; its two numbers move it across and tilt it. Odd capsules are vertical."""
    y, x = torch.meshgrid(torch.arange(SIDE).float(), torch.arange(SIDE).float(), indexing="ij")
    vertical = capsule[:, None, None] % 2 == 1
    along = torch.where(vertical, y, x)
    across = torch.where(vertical, x, y)
    centre = 2 + 3.5 * (capsule // 2).float()[:, None, None] + 0.6 * pose[:, 0, None, None]
    tilt = 0.05 * pose[:, 1, None, None] * (along - SIDE / 2)
    return torch.sigmoid(4 - 3 * (across - centre - tilt).square())[:, None]


def decoders(decode=strokes):
    return E.Decoders(E.linear_decoder(decode, (J, N)), decode, (J, N))


def scenes(pairs, seed=0):
    """Superposed strokes of known capsules: the images, and the objects in them."""
    pose = torch.randn(len(pairs), 2, N, generator=torch.Generator().manual_seed(seed))
    capsule = torch.tensor(pairs)
    objects = strokes(capsule.flatten(), pose.flatten(0, 1)).unflatten(0, capsule.shape)
    return objects.amax(1), objects


def explained(images, *arguments, **options):
    return E.last(E.search_steps(decoders(), images, 2, *arguments, **options))


# The search


def test_every_pair_of_known_poses_is_recovered():
    pairs = list(itertools.combinations(range(J), 2))
    images, objects = scenes(pairs)
    sets = explained(images)
    order = sets.capsule[:, 0].argsort(1)
    rows = torch.arange(len(pairs))[:, None]
    assert sets.capsule[:, 0][rows, order].tolist() == [list(pair) for pair in pairs]
    assert (sets.objects[:, 0][rows, order] - objects).square().mean() < 0.003


def test_the_object_in_front_comes_first():
    pairs = list(itertools.permutations((0, 3, 5), 2))
    _, objects = scenes(pairs)
    occlusion = E.COMPOSITIONS["occlusion"]
    objects = objects * torch.tensor([0.5, 1.0])[:, None, None, None]  # the one in front is dimmer

    def dim_or_bright(capsule, pose):
        """The first six capsules draw dim strokes, the others bright ones."""
        return strokes(capsule % J, pose) * torch.where(capsule < J, 0.5, 1.0)[:, None, None, None]

    both = E.Decoders(E.linear_decoder(dim_or_bright, (2 * J, N)), dim_or_bright, (2 * J, N))
    sets = E.last(E.search_steps(both, occlusion.compose(objects), 2, occlusion))
    assert sets.capsule[:, 0].tolist() == [[front, back + J] for front, back in pairs]
    assert E.Explanation.of(sets, occlusion).capsule.tolist() == sets.capsule[:, 0].tolist()


def test_the_result_does_not_depend_on_the_batch_or_the_run():
    images, _ = scenes([(0, 3), (2, 5), (1, 4)])
    together = explained(images)
    again = explained(images)
    alone = explained(images[1:2])
    assert all(torch.equal(a, b) for a, b in zip(together, again, strict=True))
    assert torch.equal(together.capsule[1, 0], alone.capsule[0, 0])
    assert torch.allclose(together.pose[1, 0], alone.pose[0, 0], atol=1e-3)


def test_moved_strokes_are_found_where_they_are():
    """Every capsule of a pair is moved by two pixels, as none of its poses can."""
    images, _ = scenes([(0, 3), (2, 5)])
    moved = torch.zeros_like(images)
    moved[:, :, 2:] = images[:, :, :-2]
    errors = []
    for shift in (0.0, 3.0):
        sets = explained(moved, search=E.Search(shift=shift))
        errors.append((sets.objects[:, 0].amax(1) - moved).square().mean())
    assert errors[1] < errors[0] / 4


def test_the_recognition_network_decides_between_capsules_that_draw_the_same():
    images, _ = scenes([(0, 1), (1, 2), (0, 2)])
    twins = decoders(lambda capsule, pose: strokes(capsule % 3, pose))
    odds = torch.tensor([0.0, 0, 0, 1, 1, 1]).repeat(3, 1)
    mixed = torch.zeros(6, 6)
    mixed[:3, 3:] = mixed[3:, :3] = 2  # one of either kind, though the second kind has the higher odds
    cases = (
        (Recognised(odds, 0 * mixed), [[3, 4], [4, 5], [3, 5]]),
        (Recognised(-odds, 0 * mixed), [[0, 1], [1, 2], [0, 2]]),
        (Recognised(odds * torch.tensor([1.0, 1, 1, 1, 2, 3]), mixed), [[0, 4], [1, 5], [0, 5]]),
    )
    for recognised, expected in cases:
        sets = E.last(E.search_steps(twins, images, 2, recognised=recognised))
        assert sets.capsule[:, 0].sort(1).values.tolist() == expected


def test_proposals_start_where_they_are_told():
    images, _ = scenes([(0, 3), (2, 5)])
    told = torch.randn(2, J, 3, N)
    search = E.Search(start=lambda decode, shape, images: told, proposal=E.Ascent(steps=0, rate=0.0))
    proposals = E.propose(decoders(), E.Objective(images, search=search))
    assert torch.equal(proposals.pose[:, :, 0], told.flatten(1, 2))
    assert proposals.capsule[0, :, 0].tolist() == [j for j in range(J) for _ in range(3)]
    usual = explained(images, search=E.Search(start=E.best_draws))
    assert torch.equal(explained(images).pose, usual.pose)


def test_selected_sets_are_the_best_of_all_arrangements():
    """Against loops over every pair of proposals."""
    images, _ = scenes([(0, 3), (2, 5)])
    above = torch.randn(J, J).triu(1)
    recognised = Recognised(torch.randn(2, J), above + above.T)
    objective = E.Objective(images, recognised=recognised, search=E.Search(selected_sets=5, starts=1))
    proposals = E.propose(decoders(), objective)
    sets = E.select(proposals, 2, objective)
    for row in range(2):
        values = {}
        for one, two in itertools.combinations(range(J), 2):
            composed = torch.maximum(proposals.objects[row, one, 0], proposals.objects[row, two, 0])
            poses = proposals.pose[row, [one, two]].square().sum() / 4
            alone = recognised.log_odds[row, one] + recognised.log_odds[row, two]
            support = 6 * (alone + recognised.couplings[one, two])
            values[(one, two)] = float(support - poses - E.misfit(composed, images[row], objective.search))
        best = sorted(values, key=values.get, reverse=True)[:5]
        assert [tuple(sorted(pair)) for pair in sets.capsule[row].tolist()] == best
        assert sets.objective[row].tolist() == pytest.approx([values[pair] for pair in best], rel=1e-4)
        assert torch.equal(sets.objects[row, 0].amax(0), proposals.objects[row, list(best[0]), 0].amax(0))


def test_four_opaque_objects_are_found_although_the_best_proposals_are_of_three_capsules():
    """So many orders of four are there that only six proposals could be composed."""
    capsule = torch.arange(4).repeat_interleave(2).view(1, 8, 1)
    pose = torch.randn(1, 8, 1, N)
    objects = strokes(capsule.flatten(), pose.flatten(0, 2)).unflatten(0, (1, 8, 1))
    proposals = E.Sets(capsule, pose, objects, torch.arange(8, 0, -1.0).view(1, 8))
    sets = E.select(proposals, 4, E.Objective(objects[:, ::2, 0].amax(1), E.COMPOSITIONS["occlusion"]))
    assert sets.capsule.shape[1] > 1
    assert (sets.capsule.sort(-1).values == torch.arange(4)).all()


def test_sets_with_the_same_capsules_as_a_better_one_come_last():
    capsule = torch.tensor([[[0, 1], [0, 2], [0, 1], [1, 2], [0, 2]]])
    objective = torch.tensor([[1.0, 2.0, 5.0, 3.0, 4.0]])
    number = torch.arange(5.0).view(1, 5, 1, 1).expand(1, 5, 2, 1)
    sets = E.Sets(capsule, number, number[..., None, None], objective).best_first()
    assert sets.objective.tolist() == [[5, 4, 3, 2, 1]]
    objective = torch.tensor([[1.0, 4.5, 5.0, 3.0, 4.0]])
    sets = E.Sets(capsule, number, number[..., None, None], objective).best_first()
    assert sets.objective.tolist() == [[5, 4.5, 3, 4, 1]]
    assert sets.pose[0, :, 0, 0].tolist() == [2, 1, 3, 4, 0]


# Gradient ascent


def test_fit_finds_the_optimum_of_a_quadratic():
    """-w |v - t|^2 - |v|^2 / 4 is largest at t w / (w + 1 / 4)."""
    target = torch.tensor([[0.7, -1.2], [2.0, 0.3]])
    w = 3.0

    def likelihood(objects):
        return -w * (objects[..., 0, 0] - target[:, None, None]).square().sum((2, 3))

    capsule = torch.zeros(2, 1, 1, dtype=torch.long)
    start = torch.zeros(2, 1, 1, 2)
    steps = list(E.fit(lambda capsule, pose: pose[:, :, None, None], capsule, start, likelihood, E.Ascent(200, 0.1)))
    assert len(steps) == 201
    assert torch.equal(steps[0].pose, start)
    assert torch.allclose(steps[-1].pose[:, 0, 0], target * w / (w + 0.25), atol=1e-3)


def test_the_rate_falls_to_a_fifth():
    ascent = E.Ascent(steps=4, rate=1.0)
    assert [ascent.rate_at(step) for step in range(5)] == pytest.approx([1, 0.8, 0.6, 0.4, 0.2])


# The objective


def test_misfit_by_hand():
    search = E.Search(error_weight=2.0, tolerance=0.3, excess=0.5)
    composed = torch.tensor([0.4, 0.0, 1.0]).view(1, 1, 3)
    image = torch.tensor([0.0, 0.4, 1.0]).view(1, 1, 3)
    # sqrt(.4^2 + .3^2) - .3 = .2, half of it where the object has ink that the image has not
    assert E.misfit(composed, image, search).item() == pytest.approx(2 * (0.1 + 0.2))
    assert E.misfit(composed, image, search.for_objects(2)).item() == pytest.approx(2 * (0.2 + 0.2))
    assert search.for_objects(1) is search
    assert search.for_objects(2) == replace(search, excess=1.0)


def test_a_part_may_leave_ink_out_but_not_add_any():
    image = torch.tensor([0.0, 1.0, 1.0]).view(1, 1, 3)
    less = torch.tensor([0.0, 1.0, 0.0]).view(1, 1, 3)
    more = torch.tensor([0.5, 1.0, 0.0]).view(1, 1, 3)
    assert E.part_of(less, image).item() == pytest.approx(0.6)
    assert E.part_of(more, image).item() == pytest.approx(0.6 - 6 * 0.25)


# Compositions


def test_compositions_and_responsibilities():
    front = torch.zeros(1, 1, 2, 2)
    back = torch.zeros(1, 1, 2, 2)
    front[0, 0, 0] = 0.6  # a row before a column
    back[0, 0, :, 0] = 0.9
    objects = torch.stack([front, back], 1)
    composed = {name: composition.compose(objects)[0, 0] for name, composition in E.COMPOSITIONS.items()}
    assert torch.equal(composed["maximum"], torch.tensor([[0.9, 0.6], [0.9, 0.0]]))
    assert torch.equal(composed["sum"], torch.tensor([[1.0, 0.6], [0.9, 0.0]]))
    assert torch.allclose(composed["occlusion"], torch.tensor([[0.6, 0.6], [0.9, 0.0]]), atol=0.02)
    owners = {"maximum": [[1, 0], [1, None]], "occlusion": [[0, 0], [1, None]]}
    for name, expected in owners.items():
        owner = E.COMPOSITIONS[name].responsibilities(objects)[0]
        assert torch.allclose(owner.sum(0), torch.ones(2, 2))
        for row, column in itertools.product(range(2), range(2)):
            if expected[row][column] is not None:
                assert owner[:, row, column].argmax() == expected[row][column]
    shares = E.COMPOSITIONS["sum"].responsibilities(objects)[0, :, 0, 0]
    assert torch.allclose(shares, torch.tensor([0.4, 0.6]))
    swapped = E.MAXIMUM.responsibilities(objects.flip(1))
    assert torch.equal(swapped, E.MAXIMUM.responsibilities(objects).flip(1))


def test_the_order_of_objects_matters_only_where_one_hides_another():
    dim_then_bright = torch.tensor([0.2, 0.7]).view(1, 2, 1, 1, 1).expand(1, 2, 1, 3, 3)
    for name, composition in E.COMPOSITIONS.items():
        one = composition.compose(dim_then_bright)
        other = composition.compose(dim_then_bright.flip(1))
        different = not torch.allclose(one, other)
        assert composition.ordered == different, name
        assert composition.order(dim_then_bright).tolist() == ([[0, 1]] if different else [[1, 0]])
        for count, k in ((4, 1), (4, 2), (5, 3)):
            arrangements = list(composition.arrangements(count, k))
            assert len(set(arrangements)) == len(arrangements)
            assert composition.most_objects(k, len(arrangements)) == count
            assert composition.most_objects(k, len(arrangements) - 1) == max(count - 1, k)
        assert ((1, 0) in composition.arrangements(3, 2)) == different


def test_the_command_offers_every_composition():
    assert get_args(Compose) == tuple(E.COMPOSITIONS)


# Decoders


def test_the_linear_decoder_is_exact_where_the_logits_are_affine():
    maps = 0.5 * torch.randn(J, N + 1, 9, generator=torch.Generator().manual_seed(1))

    def decode(capsule, pose):
        return torch.sigmoid(maps[capsule, N] + torch.einsum("rn,rnp->rp", pose, maps[capsule, :N])).view(-1, 1, 3, 3)

    capsule = torch.arange(J)
    pose = torch.randn(J, N) / 2
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


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return CapsulePoE.build(Config(channels=8, layers="4x3"), (12, 12, 1)).requires_grad_(False).eval()


def test_a_pose_of_zero_decodes_to_the_centre_of_the_prior(model):
    model = copy.deepcopy(model)
    model.prior.centre.copy_(torch.randn(4, 3))
    images = E.capsule_decoder(model, 1.5)(torch.arange(4), torch.zeros(4, 3))
    expected = model.decode_pose(torch.arange(4), model.prior.centre, 1.5)
    assert torch.allclose(images, expected, atol=1e-6)


def test_the_linear_decoder_follows_the_weights(model):
    model = copy.deepcopy(model)
    before = E.linear_decoder_of(model)
    assert E.linear_decoder_of(model) is before
    assert E.linear_decoder_of(model, 1.0) is not before
    model.codec.up_2.bias.add_(1.0)
    assert E.linear_decoder_of(model).affine[:, -1].mean() > before.affine[:, -1].mean() + 0.5


# Networks


def test_explanations_have_the_promised_shapes(model):
    images = np.random.default_rng(0).random((3, 12, 12, 1), np.float32)
    for k, compose in ((1, "maximum"), (2, "occlusion"), (3, "sum"), (None, "maximum")):
        explanation = model.explain(images, k, compose)
        width = k or 3
        assert explanation.capsule.shape == (3, width)
        assert explanation.pose.shape == (3, width, 3)
        assert explanation.objects.shape == (3, width, 12, 12, 1)
        assert explanation.owner.shape == (3, width, 12, 12)
        assert explanation.image.shape == (3, 12, 12, 1)
        assert explanation.objective.shape == (3,)
        assert ((explanation.capsule >= 0) == (explanation.probability > 0)).all()
        np.testing.assert_allclose(explanation.owner.sum(1), 1, atol=1e-4)
        for row in explanation.capsule:
            present = row[row >= 0]
            assert len(present) >= 1
            assert len(set(present)) == len(present)


def test_without_a_number_the_best_count_is_taken(model):
    """Each further object has to pay its cost."""
    images = np.random.default_rng(2).random((3, 12, 12, 1), np.float32)
    alone = [E.explain(model, images, k) for k in (1, 2, 3)]
    for cost in (0.0, 1.0, 1e6):
        value = np.stack([one.objective for one in alone]) - cost * np.array([1, 2, 3])[:, None]
        best = value.argmax(0)
        explanation = E.explain(model, images, None, search=E.Search(object_cost=cost))
        assert (explanation.capsule >= 0).sum(1).tolist() == (best + 1).tolist()
        expected = [alone[count].objective[row] for row, count in enumerate(best)]
        np.testing.assert_allclose(explanation.objective, expected, rtol=1e-5)


def test_dark_objects_on_a_light_background_are_explained_as_their_negatives(model):
    model = copy.deepcopy(model)
    up = model.codec.up_2
    up.bias.fill_(-1.0)
    images = 0.4 * np.random.default_rng(3).random((2, 12, 12, 1), np.float32)
    light = model.explain(images)
    assert not Polarity.of_network(model).dark
    for weights in (up.weight, up.bias):  # sigmoid(-x) = 1 - sigmoid(x)
        weights.mul_(-1)
    dark = model.explain(1 - images)
    assert Polarity.of_network(model).dark
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


def test_the_search_needs_no_gradients_around_it():
    images, _ = scenes([(0, 3), (2, 5)])
    with torch.no_grad():
        inside = explained(images)
    assert torch.equal(inside.capsule, explained(images).capsule)


def test_a_network_without_an_autoencoder_is_explained():
    network = build_network(Config(codec="pixels", patch=4, layers="4x3"), (12, 12, 1)).requires_grad_(False)
    network.prior.centre.copy_(2 * torch.randn(4, 3))
    images = network.array(network.decode_pose(torch.arange(4), network.prior.centre, E.Search.logit_scale))
    explanation = E.explain(network, images, 1)
    assert explanation.capsule[:, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(explanation.image, images, atol=0.1)


def test_a_table_of_features_has_no_images():
    network = build_network(Config(layers="4x3"), (1, 20, 1), FeatureCode(20))
    with pytest.raises(InputError, match="a network of plain features has no images"):
        E.explain(network, np.zeros((1, 1, 20, 1), np.float32))


def test_the_recognition_network_counts_the_objects(model, monkeypatch):
    """Each image is explained by its most probable number of objects, in the order of the images."""
    images = np.random.default_rng(2).random((4, 12, 12, 1), np.float32)
    network = copy.deepcopy(model)
    network.recognition = Recognition(network.image, network.top.upper[0]).eval()
    probability = torch.tensor([[0.2, 0.7, 0.1], [0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]])
    monkeypatch.setattr(Recognised, "count_probability", lambda self, most: probability[:, :most])
    explanation = E.explain(network, images, None)
    assert (explanation.capsule >= 0).sum(1).tolist() == [2, 1, 3, 2]
    for row, count in enumerate([2, 1, 3, 2]):
        alone = E.explain(network, images[row : row + 1], count)
        assert explanation.capsule[row, :count].tolist() == alone.capsule[0].tolist()
        np.testing.assert_allclose(explanation.objective[row], alone.objective[0], rtol=1e-4)


def test_counts_are_averaged_over_enlargements(model, monkeypatch):
    """One object at the usual size, three when it is enlarged: together the mean decides, not the first."""
    images = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    network = copy.deepcopy(model)
    network.recognition = Recognition(network.image, network.top.upper[0]).eval()
    answers = {1.0: [[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]], 1.25: [[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]]}
    turns = iter(answers.values())
    monkeypatch.setattr(Recognised, "count_probability", lambda self, most: torch.tensor(next(turns)))
    assert E.recognised_counts(network, images, 3, tuple(answers)).tolist() == [3, 1]


def test_an_enlarged_image_shows_its_middle_larger():
    image = torch.zeros(1, 1, 12, 12)
    image[..., 4:8, 4:8] = 1
    torch.testing.assert_close(E.enlarge(image, 1.0), image)
    twice = E.enlarge(image, 2.0)
    assert twice[0, 0, 3:9, 3:9].min() == 1  # 8x8 pixels, with soft edges
    assert twice[0, 0, :, 0].max() == 0
    assert float(twice.sum()) == pytest.approx(4 * 16, rel=0.05)


def test_the_probability_of_a_number_of_objects_sums_over_all_sets():
    rng = torch.Generator().manual_seed(0)
    couplings = torch.randn(5, 5, generator=rng)
    recognised = Recognised(torch.randn(3, 5, generator=rng), (couplings + couplings.T).fill_diagonal_(0))
    weight = torch.zeros(3, 3)
    for k in (1, 2, 3):
        for chosen in itertools.combinations(range(5), k):
            pairs = sum(recognised.couplings[i, j] for i, j in itertools.combinations(chosen, 2))
            weight[:, k - 1] += torch.exp(recognised.log_odds[:, chosen].sum(1) + pairs)
    torch.testing.assert_close(recognised.count_probability(3), weight / weight.sum(1, keepdim=True))
