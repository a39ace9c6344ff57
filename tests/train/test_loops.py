"""The training loops: batches, schedules, and the same steps wherever they start."""

import itertools
import math

import numpy as np
import pytest
import torch

from capspoe import kernels
from capspoe.config import Config, preset
from capspoe.data import ArrayDataset
from capspoe.errors import DivergedError, RunError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network, centre_crop
from capspoe.model.noise import Noise
from capspoe.train import loops, optimizers

CONFIG = Config(channels=8, layers="3x4", batch_size=4, min_steps=0)


def test_every_epoch_sees_every_image_once_in_its_own_order():
    steps = list(loops.batches(10, 4, seed=3, stream=1, first=0, last=6))
    assert [step for step, _ in steps] == list(range(6))
    assert [len(index) for _, index in steps] == [4, 4, 2, 4, 4, 2]
    first, second = (np.concatenate([i for _, i in steps[s : s + 3]]) for s in (0, 3))
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    for start in range(1, 6):
        tail = list(loops.batches(10, 4, 3, 1, start, 6))
        assert all(a == b and np.array_equal(i, j) for (a, i), (b, j) in zip(tail, steps[start:], strict=True))
    for other in ((4, 1), (3, 2)):
        assert not np.array_equal(next(loops.batches(10, 4, *other, 0, 1))[1], steps[0][1])


def test_small_data_sets_get_extra_epochs():
    config = CONFIG.replace(batch_size=10, min_steps=45)
    assert [loops.planned_steps(3, count, config) for count in (1000, 95, 7)] == [300, 50, 45]
    for name in ("small", "paper"):
        c = preset(name)
        assert loops.planned_steps(c.autoencoder_epochs, 60_000, c) == 469 * c.autoencoder_epochs


@kernels.use("reference")
def weights_after(first_part, last=7):
    """Both loops on random data, stopped after `first_part` steps and resumed by new objects."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 255, (10, 9, 9, 1), np.uint8)
    network = Network(CONFIG.replace(crop=8), (8, 8, 1))
    codes = rng.random((10, *network.top.lower)).astype(np.float16)
    for make, loop in (
        (
            lambda: optimizers.autoencoder_optimizer(network),
            lambda *a: loops.autoencoder_steps(network, ArrayDataset(pixels), *a),
        ),
        (
            lambda: optimizers.capsule_optimizer(network.top, CONFIG),
            lambda *a: loops.capsule_steps(network, 0, codes, *a),
        ),
    ):
        optimizer = make()
        done = [step.number for step in itertools.islice(loop(optimizer, 0, last), first_part)]
        kept, optimizer = optimizers.optimizer_tensors(optimizer), make()
        optimizers.restore_optimizer(optimizer, kept)
        done += [step.number for step in loop(optimizer, first_part, last)]
        assert done == list(range(1, last + 1))
    return network.state_dict()


def test_a_loop_can_start_at_any_step():
    whole = weights_after(0)
    for first_part in (1, 4, 6):
        resumed = weights_after(first_part)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@kernels.use("reference")
def test_every_step_has_the_noise_of_its_images(monkeypatch):
    network, pixels = Network(CONFIG, (8, 8, 1)), np.zeros((10, 8, 8, 1), np.uint8)
    codes, seen = np.random.default_rng(0).random((10, *network.top.lower)).astype(np.float16), []

    def recording(real):
        return lambda *a, **k: seen.extend(n for n in a if isinstance(n, Noise)) or real(*a, **k)

    monkeypatch.setattr(network.codec, "loss", recording(network.codec.loss))
    monkeypatch.setattr(loops.contrastive, "step", recording(loops.contrastive.step))
    list(loops.autoencoder_steps(network, ArrayDataset(pixels), optimizers.autoencoder_optimizer(network), 2, 6))
    list(loops.capsule_steps(network, 0, codes, optimizers.capsule_optimizer(network.top, CONFIG), 2, 6))
    steps = [(step, list(index)) for stream in (1, 2) for step, index in loops.batches(10, 4, 0, stream, 2, 6)]
    assert [(noise.step, noise.index.tolist()) for noise in seen] == steps
    assert {noise.seed for noise in seen} == {CONFIG.seed}


def test_random_crops_belong_to_the_image():
    pixels = np.arange(2 * 10 * 12 * 1, dtype=np.uint8).reshape(2, 10, 12, 1)
    index = torch.tensor([5, 9])
    whole = loops.random_crop(pixels, 8, Noise(0, 1, index))
    assert whole.shape == (2, 8, 8, 1)
    assert np.array_equal(whole[1:], loops.random_crop(pixels[1:], 8, Noise(0, 1, index[1:])))
    places = {loops.random_crop(pixels[:1], 8, Noise(0, s, index[:1]))[0, 0, 0, 0] for s in range(200)}
    assert len(places) == 3 * 5
    assert centre_crop(pixels, 8)[0, 0, 0, 0] == pixels[0, 1, 2, 0]
    for cropped in (loops.random_crop(pixels, 11, Noise(0, 1, index)), centre_crop(pixels, 11)):
        assert cropped.shape == (2, 10, 11, 1)  # a side that is shorter than the crop stays whole


def test_the_temperature_falls_to_one_by_equal_factors():
    config = CONFIG.replace(gate_temperature=30.0, anneal_fraction=0.7)
    values = [loops.annealed(t, config) for t in np.linspace(0, 1, 101)]
    assert values[0] == pytest.approx(30)
    assert values[35] == pytest.approx(30**0.5)
    assert values[70:] == pytest.approx([1.0] * 31)
    assert loops.annealed(0, config.replace(anneal_fraction=0.0)) == 1


def test_collapse_to_one_capsule_is_noticed():
    layer = CapsuleLayer((4, 2), (3, 2))
    metrics = {"weight_norm": 1.0, "use": [0.0005, 0.999, 0.0005]}
    with pytest.raises(DivergedError, match="collapsed at step 7: capsule 1 takes all images; raise"):
        loops.check_diverged(layer, metrics, 7, 128)
    for harmless in (0, 1, 18):  # with targets, or in so few images by chance: 3**-18
        loops.check_diverged(layer, metrics, 7, harmless)
    with pytest.raises(DivergedError):
        loops.check_diverged(layer, metrics, 7, 19)
    loops.check_diverged(layer, {"weight_norm": 1.0, "use": [0.6, 0.4, 0.0]}, 7, 128)
    loops.check_diverged(CapsuleLayer((4, 2), (1, 2)), {"weight_norm": 1.0, "use": [1.0]}, 7, 128)
    with pytest.raises(DivergedError, match="diverged at step 7: the weights have grown to 101"):
        loops.check_diverged(layer, {"weight_norm": 101 * math.sqrt(48), "use": [0.6, 0.4, 0.0]}, 7, 0)
    with pytest.raises(DivergedError, match="diverged at step 7: the weights have grown to nan"):
        loops.check_diverged(layer, {"weight_norm": math.nan, "use": [0.6, 0.4, 0.0]}, 7, 0)


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
    network, rates = Network(CONFIG, (8, 8, 1)), []
    codes = np.random.default_rng(0).random((10, *network.top.lower)).astype(np.float16)
    optimizer = optimizers.capsule_optimizer(network.top, CONFIG)
    monkeypatch.setattr(network.top, "balance", lambda use, rate, share: rates.append(rate))
    learning = [optimizer.param_groups[0]["lr"] for _ in loops.capsule_steps(network, 0, codes, optimizer, 0, 4)]
    assert learning == pytest.approx([CONFIG.learning_rate * k / 4 for k in (4, 3, 2, 1)])
    assert rates == pytest.approx([CONFIG.balance_rate * k / 4 for k in (4, 3, 2, 1)])
