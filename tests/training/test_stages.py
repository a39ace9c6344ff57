"""The training loops: batches, schedules, and the same steps wherever they start."""

import itertools
import math

import numpy as np
import pytest
import torch

from capspoe import kernels
from capspoe.config import Config, preset
from capspoe.data import ArrayDataset
from capspoe.errors import DivergedError, InputError, RunError
from capspoe.model.build import build_network
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import centre_crop
from capspoe.model.noise import Noise
from capspoe.training import optimizers
from capspoe.training.build import build_stages
from capspoe.training.capsule_stage import Annealing, CapsuleStage, check_diverged
from capspoe.training.codec_stage import random_crop
from capspoe.training.stage import Schedule, Training

CONFIG = Config(channels=8, layers="3x4", batch_size=4, autoencoder_batch_size=4, min_steps=0)


def test_every_epoch_sees_every_image_once_in_its_own_order():
    schedule = Schedule(2, 4, seed=3)
    steps = list(schedule.batches(10, stream=1, first=0, last=6))
    assert [step for step, _ in steps] == list(range(6))
    assert [len(index) for _, index in steps] == [4, 4, 2, 4, 4, 2]
    first, second = (np.concatenate([i for _, i in steps[s : s + 3]]) for s in (0, 3))
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    for start in range(1, 6):
        tail = list(schedule.batches(10, 1, start, 6))
        assert all(a == b and np.array_equal(i, j) for (a, i), (b, j) in zip(tail, steps[start:], strict=True))
    for seed, stream in ((4, 1), (3, 2)):
        other = Schedule(2, 4, seed=seed)
        assert not np.array_equal(next(other.batches(10, stream, 0, 1))[1], steps[0][1])


def test_small_data_sets_get_extra_epochs():
    schedule = Schedule(3, batch_size=10, min_steps=45)
    assert [schedule.steps(count) for count in (1000, 95, 7)] == [300, 50, 45]
    assert [schedule.extra_epochs(count) for count in (1000, 95)] == [
        None,
        "5 epochs instead of 3, to reach --min-steps 45",
    ]
    for name in ("small", "paper"):
        c = preset(name)
        schedule = Schedule(c.autoencoder_epochs, c.autoencoder_batch_size, c.min_steps)
        assert schedule.steps(60_000) == 1875 * c.autoencoder_epochs


def training_on_noise(crop=None):
    """Random images and codes of a small network."""
    rng = np.random.default_rng(0)
    network = build_network(CONFIG.replace(crop=crop), (8, 8, 1))
    pixels = rng.integers(0, 255, (10, 9, 9, 1) if crop else (10, 8, 8, 1), np.uint8)
    codes = rng.random((10, *network.top.lower)).astype(np.float16)
    return Training(network, ArrayDataset(pixels), lambda: codes)


def both_stages(network, **changes):
    codec, capsules, *_ = build_stages(CONFIG.replace(gate_targets="none", **changes), network)
    return codec, capsules


@kernels.use("reference")
def weights_after(first_part, last=7, **changes):
    """Both stages on random data, stopped after `first_part` steps and resumed by new objects."""
    training = training_on_noise(crop=8)
    for position in (0, 1):
        stage = both_stages(training.network, **changes)[position]
        stage.begin(training, 0, {})
        done = [step.number for step in itertools.islice(stage.run(training, 0, last), first_part)]
        state = {name: value.clone() for name, value in stage.state().items()}
        if first_part:
            stage = both_stages(training.network, **changes)[position]
            stage.begin(training, first_part, state)
        done += [step.number for step in stage.run(training, first_part, last)]
        assert done == list(range(1, last + 1))
    return training.network.state_dict()


@pytest.mark.parametrize("chains", [0, 5])
def test_a_stage_can_start_at_any_step(chains):
    whole = weights_after(0, chains=chains)
    for first_part in (1, 4, 6):
        resumed = weights_after(first_part, chains=chains)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@kernels.use("reference")
def test_the_log_likelihood_goes_on_where_it_was():
    """The same metrics in every later step, and both estimates near each other when the layer hardly learns."""

    def lines_after(first_part):
        training = training_on_noise()
        stage = both_stages(training.network, chains=40, learning_rate=1e-6)[1]
        stage.begin(training, 0, {})
        lines = [step.metrics for step in itertools.islice(stage.run(training, 0, 60), first_part)]
        state = {name: value.clone() for name, value in stage.state().items()}
        stage = both_stages(training.network, chains=40, learning_rate=1e-6)[1]
        stage.begin(training, first_part, state)
        return lines + [step.metrics for step in stage.run(training, first_part, 60)]

    whole, resumed = lines_after(59), lines_after(30)
    assert whole == resumed
    late = whole[-20:]
    lower = np.mean([line["log_likelihood_lower"] for line in late])
    upper = np.mean([line["log_likelihood_upper"] for line in late])
    assert lower == pytest.approx(upper, abs=0.3)


@pytest.mark.parametrize("wrong", [torch.zeros(3, 4, 4), torch.full((3, 5, 4), math.nan)])
def test_chains_that_do_not_fit_are_refused(wrong):
    training = training_on_noise()
    stage = both_stages(training.network, chains=5)[1]
    with pytest.raises(RunError, match="the persistent chains do not fit the settings"):
        stage.begin(training, 1, {"chains": wrong})


@pytest.mark.parametrize("options", [{"gate": "none"}, {"neurons": "binary"}])
def test_chains_need_the_gate_and_gaussian_neurons(options):
    config = CONFIG.replace(chains=5, **options)
    with pytest.raises(InputError, match="persistent chains need the gate and gaussian neurons"):
        build_stages(config, build_network(config, (8, 8, 1)))


@kernels.use("reference")
def test_every_step_has_the_noise_of_its_images(monkeypatch):
    training = training_on_noise()
    codec, capsules = both_stages(training.network)
    seen = []

    def recording(real):
        return lambda *a, **k: seen.extend(n for n in a if isinstance(n, Noise)) or real(*a, **k)

    monkeypatch.setattr(training.network.codec, "loss", recording(training.network.codec.loss))
    monkeypatch.setattr(capsules, "train_step", recording(capsules.train_step))
    for stage in (codec, capsules):
        stage.begin(training, 0, {})
        list(stage.run(training, 2, 6))
    schedule = Schedule(1, CONFIG.batch_size)
    steps = [(step, list(index)) for stream in (1, 2) for step, index in schedule.batches(10, stream, 2, 6)]
    assert [(noise.step, noise.index.tolist()) for noise in seen] == steps
    assert {noise.seed for noise in seen} == {CONFIG.seed}


def test_random_crops_belong_to_the_image():
    pixels = np.arange(2 * 10 * 12 * 1, dtype=np.uint8).reshape(2, 10, 12, 1)
    index = torch.tensor([5, 9])
    whole = random_crop(pixels, 8, Noise(0, 1, index))
    assert whole.shape == (2, 8, 8, 1)
    assert np.array_equal(whole[1:], random_crop(pixels[1:], 8, Noise(0, 1, index[1:])))
    places = {random_crop(pixels[:1], 8, Noise(0, s, index[:1]))[0, 0, 0, 0] for s in range(200)}
    assert len(places) == 3 * 5
    assert centre_crop(pixels, 8)[0, 0, 0, 0] == pixels[0, 1, 2, 0]
    for cropped in (random_crop(pixels, 11, Noise(0, 1, index)), centre_crop(pixels, 11)):
        assert cropped.shape == (2, 10, 11, 1)  # a side that is shorter than the crop stays whole


def test_the_temperature_falls_to_one_by_equal_factors():
    values = [Annealing(30.0, 0.7).at(t) for t in np.linspace(0, 1, 101)]
    assert values[0] == pytest.approx(30)
    assert values[35] == pytest.approx(30**0.5)
    assert values[70:] == pytest.approx([1.0] * 31)
    assert Annealing(30.0, 0.0).at(0) == 1


def test_collapse_to_one_capsule_is_noticed():
    layer = CapsuleLayer((4, 2), (3, 2))
    metrics = {"weight_norm": 1.0, "use": [0.0005, 0.999, 0.0005]}
    with pytest.raises(DivergedError, match="collapsed at step 7: capsule 1 takes all images; raise"):
        check_diverged(layer, metrics, 7, 128)
    for harmless in (0, 1, 18):  # with targets, or in so few images by chance: 3**-18
        check_diverged(layer, metrics, 7, harmless)
    with pytest.raises(DivergedError):
        check_diverged(layer, metrics, 7, 19)
    check_diverged(layer, {"weight_norm": 1.0, "use": [0.6, 0.4, 0.0]}, 7, 128)
    check_diverged(CapsuleLayer((4, 2), (1, 2)), {"weight_norm": 1.0, "use": [1.0]}, 7, 128)
    with pytest.raises(DivergedError, match="diverged at step 7: the weights have grown to 101"):
        check_diverged(layer, {"weight_norm": 101 * math.sqrt(48), "use": [0.6, 0.4, 0.0]}, 7, 0)
    with pytest.raises(DivergedError, match="diverged at step 7: the weights have grown to nan"):
        check_diverged(layer, {"weight_norm": math.nan, "use": [0.6, 0.4, 0.0]}, 7, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"1.momentum_buffer": torch.ones(3)},
        {"momentum_buffer": torch.ones(3)},
        {"0.momentum_buffer": torch.ones(2)},
        {"0.momentum_buffer": torch.full((3,), math.nan)},
        {"x.step": torch.tensor(1.0)},
    ],
)
def test_an_optimizer_state_is_restored_and_one_that_does_not_fit_refused(wrong):
    def optimizer():
        return torch.optim.SGD([torch.nn.Parameter(torch.ones(3))], 0.1, momentum=0.9)

    one, other = optimizer(), optimizer()
    (parameter,) = one.param_groups[0]["params"]
    parameter.grad = torch.arange(3.0)
    one.step()
    kept = optimizers.optimizer_tensors(one)
    optimizers.restore_optimizer(other, kept)
    assert kept.keys() == {"0.momentum_buffer"}
    assert torch.equal(optimizers.optimizer_tensors(other)["0.momentum_buffer"], torch.arange(3.0))
    with pytest.raises(RunError, match=r"the optimizer state .* does not fit the settings"):
        optimizers.restore_optimizer(other, wrong)


def test_a_rare_group_moves_the_gate_a_little():
    """One image of a group of 1 in 60,000 in a batch of 128; it moved d by 140."""
    layer = CapsuleLayer((4, 2), (4, 2))
    share = torch.tensor([1 / 60_000, 0.2, 0.3, 0.5 - 1 / 60_000])
    use = torch.tensor([1 / 128, 25 / 128, 38 / 128, 64 / 128])
    layer.balance(use, 0.3, share)
    assert layer.d.abs().max() < 0.05
    assert layer.d[0] < 0
    for _ in range(468):  # the rest of the epoch has none of it: the epoch leaves d where it was
        layer.balance(torch.tensor([0.0, 0.2, 0.3, 0.5]), 0.3, share)
    assert layer.d.abs().max() < 0.05


def test_the_balance_of_common_groups():
    layer = CapsuleLayer((4, 2), (4, 2))
    use, share = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0.4, 0.15, 0.2, 0.25])
    for target in (None, share):
        layer.d.zero_()
        layer.balance(use, 0.3, target)
        move = 0.3 * (1 - use / (0.25 if target is None else target))
        torch.testing.assert_close(layer.d, move - move.mean())


def test_the_learning_rate_and_the_balance_rate_decay_together(monkeypatch):
    training = training_on_noise()
    stage = both_stages(training.network)[1]
    rates = []
    monkeypatch.setattr(training.network.top, "balance", lambda use, rate, share: rates.append(rate))
    stage.begin(training, 0, {})
    learning = [stage._ascent.param_groups[0]["lr"] for _ in stage.run(training, 0, 4)]
    assert learning == pytest.approx([CONFIG.learning_rate * k / 4 for k in (4, 3, 2, 1)])
    assert rates == pytest.approx([CONFIG.balance_rate * k / 4 for k in (4, 3, 2, 1)])


def test_layers_below_take_the_rate_of_their_neurons():
    config = Config(channels=8, layers="4x3,3x4")
    network = build_network(config, (8, 8, 1))
    _, below, top, *_ = build_stages(config, network)
    assert isinstance(below, CapsuleStage)
    assert below.learning_rate == pytest.approx(30 * config.learning_rate)
    assert top.learning_rate == config.learning_rate
