"""The recognition network: scenes with known capsules, training without labels, and its file."""

import itertools

import numpy as np
import pytest
import torch

from capspoe import CapsulePoE
from capspoe.config import Config
from capspoe.data import ArrayDataset
from capspoe.errors import InputError, RunError
from capspoe.model.build import build_network
from capspoe.model.recognition import Recognition
from capspoe.run import checkpoint
from capspoe.training import recognition
from capspoe.training.build import build_stages
from capspoe.training.codes import codes_in_memory
from capspoe.training.recognition import RecognitionStage, pseudo_loss, scenes
from capspoe.training.stage import Training
from capspoe.training.targets import SpectralTargets

SIDE, J = 12, 4


def bars(count=200, seed=0):
    """Images of a bar each, two kinds of rows and two of columns, and which kind it is, as P(on)."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, J, count)
    pixels = np.zeros((count, SIDE, SIDE, 1), np.uint8)
    for image, k in zip(pixels, kind, strict=True):
        at = rng.integers(0, 3) + (2 if k % 2 else 7)
        (image if k < 2 else image.transpose(1, 0, 2))[at] = rng.integers(150, 256)
    return pixels, np.eye(J, dtype=np.float32)[kind]


def training_on_bars(pixels, on):
    """An untrained network and images whose groups are known."""
    config = Config(channels=8, layers=f"{J}x2", initial_std=0.0)
    network = build_network(config, (SIDE, SIDE, 1)).requires_grad_(False)
    training = Training(network, ArrayDataset(pixels), lambda: pytest.fail("codes are not needed"))
    training.groups = torch.from_numpy(on.argmax(1)).to(torch.int32)
    return training


def learn(training, steps):
    """Do the stage; returns the losses."""
    stage = RecognitionStage(steps, targets=SpectralTargets())
    stage.begin(training, 0, {})
    return [step.metrics["loss"] for step in stage.run(training, 0, steps)]


def test_scenes_hold_one_to_three_images_whose_capsules_are_the_target():
    pixels, on = bars()
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    scene, target = scenes(images, torch.from_numpy(on), torch.Generator().manual_seed(0), 300)
    assert scene.shape == (300, 1, SIDE, SIDE)
    assert 0 <= scene.min() <= scene.max() <= 1
    assert set(target.sum(1).tolist()) == {1, 2, 3}
    again = scenes(images, torch.from_numpy(on), torch.Generator().manual_seed(0), 300)
    assert all(map(torch.equal, again, (scene, target)))
    one = target.sum(1) == 1
    distance = torch.cdist(scene[one].flatten(1), images.flatten(1) / 255)
    same = distance.amin(1) < 0.05  # neither moved, nor erased, nor two of the same capsule
    assert 0.05 < same.float().mean() < 0.6
    assert torch.equal(target[one][same], torch.from_numpy(on)[distance.argmin(1)[same]])


def test_objects_move_by_at_most_the_shift(rng):
    dot = torch.zeros(300, 1, 1, SIDE, SIDE)
    dot[..., 5, 5] = 1
    place = torch.arange(SIDE) - 5.0
    for shift in (0.0, 1.0, 3.0):
        moved = recognition.moved(dot, rng, shift)[:, 0, 0]
        right = (moved.sum(1) * place).sum(1)
        down = (moved.sum(2) * place).sum(1)
        distance = torch.maximum(right.abs(), down.abs())
        assert 0.9 * shift <= distance.max() <= shift + 1e-4
        assert (distance < 1e-4).float().mean() > 0.5  # most scenes stay as they are


def test_it_learns_to_name_the_capsules_of_one_object_and_of_two():
    pixels, on = bars()
    training = training_on_bars(pixels, on)
    losses = learn(training, 150)
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 3
    network = training.network
    pixels, on = bars(400, seed=1)
    assert (network.encode(pixels).on.argmax(1) == on.argmax(1)).mean() > 0.9
    pairs = np.arange(400).reshape(200, 2)
    pairs = pairs[(on[pairs[:, 0]] != on[pairs[:, 1]]).any(1)]
    two = torch.from_numpy(pixels[pairs].max(1)).permute(0, 3, 1, 2) / 255
    sets = torch.combinations(torch.arange(J), 2)
    best = network.recognition(two).support(sets.expand(len(two), -1, -1)).argmax(1)
    named = torch.zeros(len(two), J).scatter(1, sets[best], 1)
    right = (named.numpy() == on[pairs].max(1)).all(1).mean()
    assert right > 0.9


def test_it_can_start_at_any_step():
    pixels, on = bars()
    whole = training_on_bars(pixels, on)
    learn(whole, 6)
    for first in (1, 4):
        training = training_on_bars(pixels, on)
        stage = RecognitionStage(6, targets=SpectralTargets())
        stage.begin(training, 0, {})
        for step in stage.run(training, 0, 6):
            if step.number == first:
                break
        state = {name: value.clone() for name, value in stage.state().items()}
        stage = RecognitionStage(6, targets=SpectralTargets())
        stage.begin(training, first, state)
        list(stage.run(training, first, 6))
        resumed = training.network.state_dict()
        assert all(torch.equal(value, resumed[name]) for name, value in whole.network.state_dict().items())


def test_dark_ink_is_learned_as_its_negative():
    pixels, on = bars()
    light = training_on_bars(pixels, on)
    dark = training_on_bars(255 - pixels, on)
    dark.network.codec.up_2.bias.fill_(9.0)  # it decodes to white
    assert learn(light, 3) == learn(dark, 3)
    assert (light.network.recognition.dark, dark.network.recognition.dark) == (0, 1)
    one = light.network.encode(pixels[:5]).on
    other = dark.network.encode(255 - pixels[:5]).on
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_without_targets_it_learns_what_the_energy_says():
    pixels, on = bars(40)
    training = training_on_bars(pixels, on)
    codes = codes_in_memory(training.network, pixels)
    training = Training(training.network, training.images, lambda: codes)
    training.network.top.w_JNMI.normal_(std=0.3)
    stage = RecognitionStage(2)
    stage.begin(training, 0, {})
    winner = training.network.encode(pixels, posterior="energy").on.argmax(1)
    assert np.array_equal(stage._on.argmax(1), winner)


def all_sets(capsules):
    """Which capsules are on in every possible set, (2^J, J)."""
    return torch.tensor(list(itertools.product([0.0, 1.0], repeat=capsules)))


def set_probabilities(recognised):
    """P of every set in `all_sets` for each image, by the definition."""
    on = all_sets(J)
    coupled = torch.einsum("si,ij,sj->s", on, recognised.couplings, on) / 2
    return torch.softmax(recognised.log_odds @ on.T + coupled, 1)


@pytest.fixture
def recognition_network():
    network = Recognition((SIDE, SIDE, 1), J).eval().requires_grad_(False)
    network.half_couplings.normal_()
    return network


def test_the_probability_given_that_one_capsule_is_on_is_that_of_its_set(recognition_network):
    images = torch.rand(3, 1, SIDE, SIDE)
    alone = set_probabilities(recognition_network(images))[:, all_sets(J).sum(1) == 1].flip(1)  # j counts up
    expected = alone / alone.sum(1, keepdim=True)
    torch.testing.assert_close(recognition_network.on_probability(images), expected)


def test_support_is_the_log_probability_of_a_set_up_to_a_constant(recognition_network):
    recognised = recognition_network(torch.rand(3, 1, SIDE, SIDE))
    log_probability = set_probabilities(recognised).log()
    sets = torch.tensor([[0, 1], [2, 1], [3, 0]])
    rows = [int((all_sets(J) == torch.zeros(J).scatter(0, capsules, 1)).all(1).nonzero()) for capsules in sets]
    constant = log_probability[:, rows] - recognised.support(sets.expand(3, -1, -1))
    torch.testing.assert_close(constant, constant[:, :1].expand(-1, 3))
    empty = log_probability[:, 0]
    torch.testing.assert_close(constant[:, 0], empty)  # the empty set has support 0


def test_the_loss_is_that_of_each_capsule_given_the_others(recognition_network):
    """P(j on | the others), from the probabilities of the two sets that differ in j alone."""
    recognised = recognition_network(torch.rand(2, 1, SIDE, SIDE))
    probability = set_probabilities(recognised)
    on = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    binary = 2 ** torch.arange(J - 1, -1, -1)
    losses = []
    for image in range(2):
        for j in range(J):
            other = on[image].clone()
            other[j] = 1 - other[j]
            this = probability[image, int((on[image] * binary).sum())]
            that = probability[image, int((other * binary).sum())]
            losses.append(-torch.log(this / (this + that)))
    torch.testing.assert_close(pseudo_loss(recognised, on), torch.stack(losses).mean())


def test_reordered_sets_have_the_support_of_what_they_were(recognition_network):
    recognised = recognition_network(torch.rand(2, 1, SIDE, SIDE))
    order = torch.tensor([2, 0, 3, 1])
    sets = torch.tensor([[0, 1], [3, 2]]).expand(2, -1, -1)
    torch.testing.assert_close(recognised.reordered(order).support(sets), recognised.support(order[sets]))


def test_the_energy_keeps_its_own_posterior(model, images):
    """P(on) comes from the recognition network, or from the energy if asked; poses are the same."""
    energy = model.encode(images, posterior="energy")
    amortised = model.encode(images)
    with torch.no_grad():
        code = model.codec.encode(model.tensor(images))
        expected = model.top.on_probability(model.top(code).z, code)
        named = model.recognition.on_probability(model.tensor(images))
    np.testing.assert_allclose(energy.on, expected.numpy(), atol=1e-5)
    np.testing.assert_allclose(amortised.on, named.numpy(), atol=1e-5)
    assert np.array_equal(energy.hidden, amortised.hidden)
    with pytest.raises(InputError, match="posterior"):
        model.encode(images, posterior="guess")


def test_a_rectangle_is_at_most_as_large_as_its_sides_say(rng):
    rectangle = recognition.rectangles(500, (20, 30), rng)
    height = rectangle.any(2).sum(1)
    width = rectangle.any(1).sum(1)
    assert torch.equal(rectangle.sum((1, 2)), height * width)  # all of it is one rectangle
    assert (torch.minimum(height / 20, width / 30) <= recognition.SHORTER + 0.05).all()
    assert ((height == 20) | (width == 30)).float().mean() < 0.5


def test_a_run_stores_it_with_the_groups_of_its_images(run):
    model = CapsulePoE.load(run)
    assert isinstance(model.recognition, Recognition)
    assert not any(parameter.requires_grad for parameter in model.recognition.parameters())
    groups = checkpoint.newest(run).optimizer["gate_targets"]
    assert groups.shape == (256,)
    share = torch.bincount(groups.long(), minlength=4) / 256
    torch.testing.assert_close(model.prior.use, share)  # the prior is that of the groups


@pytest.mark.parametrize("changes", [{"gate": "none"}, {"recognition_steps": 0}])
def test_a_network_may_have_none(changes):
    config = Config(channels=8, layers="4x2", **changes)
    names = [stage.name for stage in build_stages(config, build_network(config, (SIDE, SIDE, 1)))]
    assert names == ["autoencoder", "capsules-0", "prior"]


def test_it_moves_with_the_network(run_copy):
    model = CapsulePoE.load(run_copy)
    model.recognition = Recognition(model.image, model.top.upper[0])
    model.to("meta")
    assert {p.device.type for p in model.recognition.parameters()} == {"meta"}


def test_a_recognition_network_that_makes_no_sense_is_refused(run_copy):
    model = CapsulePoE.load(run_copy)
    model.recognition = Recognition(model.image, 4)
    weights = model.state_dict()
    for name in ("recognition.layers.1.running_mean", "recognition.layers.0.weight"):
        for wrong in (torch.full_like(weights[name], torch.nan), weights[name][:1]):
            with pytest.raises(RunError, match="the weights"):
                CapsulePoE.load(run_copy).load_weights({**weights, name: wrong})
    variance = "recognition.layers.1.running_var"
    with pytest.raises(RunError, match="give NaN"):
        CapsulePoE.load(run_copy).load_weights({**weights, variance: -weights[variance]})


def test_few_images_are_not_seen_more_than_a_hundred_times():
    stage = RecognitionStage(2000)
    assert [stage.steps(count) for count in (60_000, 1000, 1)] == [2000, 782, 1]
