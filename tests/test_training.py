"""A run from images to a trained network, interrupted and resumed, on real digits."""

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from PIL import Image

import capspoe as package
from capspoe import checkpoint, optimizers, stages
from capspoe.autoencoder import ConvAutoencoder
from capspoe.checkpoint import State
from capspoe.config import preset
from capspoe.errors import DivergedError, InputError, RunError
from capspoe.journal import Interrupted, Journal, Window
from capspoe.model import CapsulePoE
from capspoe.training import train
from runs import QUICK, capspoe, files_of, options, same_weights, stopping_after, weights_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    train("digits", folder, quiet=True, **QUICK)
    return folder


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_run_folder(run):
    assert sorted(p.name for p in run.iterdir()) == [
        "checkpoints", "config.json", "environment.json", "metrics.jsonl", "samples.png",
    ]  # fmt: skip
    environment = json.loads((run / "environment.json").read_text())
    assert environment["seed"] == 0
    assert environment["images"] == 256
    assert environment["torch"] == torch.__version__
    assert not list(run.rglob("*.p*kl"))
    assert not list(run.rglob("*.pt"))
    with Image.open(run / "samples.png") as picture:
        assert picture.size == ((4 * 30 - 2) * 2, (4 * 30 - 2) * 2)


def test_the_metrics(run):
    stage_1 = [line for line in lines(run) if line["stage"] == "autoencoder"]
    stage_2 = [line for line in lines(run) if line["stage"] == "capsules-0"]
    assert [line["step"] for line in stage_1] == [32]
    assert [line["step"] for line in stage_2] == [48]
    assert stage_1[0].keys() >= {"loss", "gradient_norm", "images_per_second"}
    assert stage_2[0].keys() >= {
        "reconstruction", "baseline", "use", "confidence", "routing_entropy", "weight_norm", "gradient_norm",
    }  # fmt: skip
    assert sum(stage_2[0]["use"]) == pytest.approx(1, abs=1e-4)


def test_training_learns(run, tmp_path):
    """The finished network reconstructs better than it did at first, and than the mean image."""
    from capspoe import data

    pixels = data.load("digits", "test").pixels[:100]
    model = CapsulePoE.load(run)
    images = pixels / 255
    error = ((model.reconstruct(pixels) - images) ** 2).mean()
    fresh = CapsulePoE(model.config, model.image)
    assert error < 0.8 * ((fresh.reconstruct(pixels) - images) ** 2).mean()
    through = ((model.reconstruct(pixels, "autoencoder") - images) ** 2).mean()
    assert through < error


def test_the_same_seed_gives_the_same_weights_and_another_does_not(run, tmp_path):
    train("digits", tmp_path / "again", quiet=True, **QUICK)
    assert same_weights(run, tmp_path / "again")
    train("digits", tmp_path / "other", quiet=True, seed=1, **QUICK)
    assert not same_weights(run, tmp_path / "other")


@pytest.mark.parametrize("steps", [1, 20, 31, 32, 33, 50, 79, 80])
def test_an_interrupted_run_resumed_equals_one_left_alone(run, tmp_path, steps):
    settings = {**QUICK, "checkpoint_seconds": 1000.0}
    with stopping_after(steps), pytest.raises(Interrupted, match="the same command again carries on"):
        train("digits", tmp_path / "run", quiet=True, **settings)
    train("digits", tmp_path / "run", quiet=True, **settings)
    assert same_weights(run, tmp_path / "run")
    ours, expected = (
        [{k: v for k, v in line.items() if k != "images_per_second"} for line in lines(folder)]
        for folder in (tmp_path / "run", run)
    )
    assert ours == expected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_says_so_and_the_run_goes_on(run, tmp_path, number):
    settings = {**QUICK, "autoencoder_epochs": 60}
    command = [
        sys.executable,
        "-m",
        "capspoe",
        "train",
        "digits",
        "--out",
        str(tmp_path / "run"),
        *options(settings),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    while len(checkpoint.numbered(tmp_path / "run")) < 2 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command again carries on" in errors
    assert "Traceback" not in errors
    step = checkpoint.newest(tmp_path / "run").state.step
    assert 0 < step < 480
    assert not list((tmp_path / "run").rglob(".*"))


def test_other_settings_are_refused_and_resume_keeps_the_stored_ones(tmp_path):
    with stopping_after(3), pytest.raises(Interrupted):
        train("digits", tmp_path / "run", quiet=True, **QUICK)
    with pytest.raises(RunError, match=r"other settings .*seed 0 -> 5"):
        train("digits", tmp_path / "run", quiet=True, **{**QUICK, "seed": 5})
    train("digits", tmp_path / "run", quiet=True, resume=True, threads=1)
    assert checkpoint.newest(tmp_path / "run").state.stage == "done"
    assert checkpoint.open_run(tmp_path / "run").config.training.epochs == QUICK["epochs"]


def test_nothing_to_resume(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        train("digits", tmp_path / "none", resume=True, quiet=True)


def test_a_finished_run_is_left_as_it_is(run):
    before = files_of(run)
    train("digits", run, quiet=True, **QUICK)
    assert files_of(run) == before


def test_a_second_training_refuses(run):
    with checkpoint.locked(run), pytest.raises(RunError, match="another training"):
        train("digits", run, quiet=True, **QUICK)


def test_a_damaged_checkpoint_is_skipped_with_a_warning(run, tmp_path, capsys):
    with stopping_after(60), pytest.raises(Interrupted):
        train("digits", tmp_path / "run", quiet=True, **QUICK)
    newest = checkpoint.numbered(tmp_path / "run")[-1]
    (newest / "model.safetensors").write_bytes(b"junk")
    train("digits", tmp_path / "run", **QUICK)
    assert "model.safetensors is damaged" in " ".join(capsys.readouterr().err.split())
    assert same_weights(run, tmp_path / "run")


@pytest.mark.parametrize("how", ["deleted", "flipped"])
def test_damaged_codes_are_computed_again(run, tmp_path, how):
    with stopping_after(50), pytest.raises(Interrupted):
        train("digits", tmp_path / "run", quiet=True, **QUICK)
    codes = tmp_path / "run" / "codes.npy"
    if how == "deleted":
        codes.unlink()
    else:
        data = bytearray(codes.read_bytes())
        data[5000] ^= 64
        codes.write_bytes(data)
    train("digits", tmp_path / "run", quiet=True, **QUICK)
    assert same_weights(run, tmp_path / "run")


def test_a_stage_that_the_network_does_not_have_is_refused(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    checkpoint.save(tmp_path / "run", State("capsules-7", 0), weights_of(run), {})
    with pytest.raises(RunError, match="the stage 'capsules-7' does not fit the settings"):
        train("digits", tmp_path / "run", quiet=True, **QUICK)


def test_a_diverging_run_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    with pytest.raises(DivergedError, match=r"(diverged|collapsed).* at step \d+.*run again"):
        train("digits", tmp_path / "run", quiet=True, **{**QUICK, "lr": 50.0, "balance": 0.0})
    saved = checkpoint.newest(tmp_path / "run")
    assert all(torch.isfinite(v).all() for v in saved.weights.values())


def test_a_loss_that_is_no_number_stops_the_run_before_it_is_saved(run, tmp_path, monkeypatch):
    real, calls = ConvAutoencoder.loss, []

    def loss(network, x, noise):
        calls.append(x)
        return real(network, x, noise) * (torch.nan if len(calls) == 9 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(ConvAutoencoder, "loss", loss)
        with pytest.raises(DivergedError, match="'autoencoder' at step 9: loss is no longer a number"):
            train("digits", tmp_path / "run", quiet=True, **QUICK)
    assert checkpoint.newest(tmp_path / "run").state.step == 8
    train("digits", tmp_path / "run", quiet=True, **QUICK)
    assert same_weights(run, tmp_path / "run")


def test_curves_that_were_changed_since_the_checkpoint_are_named(tmp_path, capsys):
    journal = Journal(tmp_path, checkpoint.State("autoencoder", 0), 1e6)
    with journal.stage("autoencoder", "1 autoencoder", 2, 0):
        for step in (1, 2):
            journal.window = Window({"steps": 49, "images": 0, "sums": {}})
            journal.step(step, 8, {"loss": 0.5}, show=())
    state = journal.state("autoencoder", 2)
    journal.close()
    Journal(tmp_path, state, 1e6).close()
    assert "damaged" not in capsys.readouterr().err
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b'"step": 1', b"?step?: 1"))
    Journal(tmp_path, state, 1e6).close()
    assert "is damaged; the 1 lines that can be read are kept" in capsys.readouterr().err
    assert [line["step"] for line in lines(tmp_path)] == [2]


def test_collapse_to_one_capsule_is_noticed():
    layer = package.CapsuleLayer((4, 2), (3, 2))
    values = {"weight_norm": 1.0, "use": [0.999, 0.0005, 0.0005]}
    with pytest.raises(DivergedError, match="capsule 0 takes all images"):
        stages.watch(layer, values, 7, may_collapse=True)
    stages.watch(layer, values, 7, may_collapse=False)  # groups have their sizes
    assert [stages.enough_to_tell(layer, images) for images in (1, 18, 19, 128)] == [False, False, True, True]
    stages.watch(layer, {"weight_norm": 1.0, "use": [0.6, 0.4, 0.0]}, 7, may_collapse=True)


def test_literal_is_what_the_paper_says(tmp_path):
    settings = {k: v for k, v in QUICK.items() if k != "components"}
    model = train("digits", tmp_path / "run", literal=True, quiet=True, **settings)
    c = model.config
    assert (c.capsules.gate, c.capsules.neurons, c.capsules.prior) == ("none", "binary", "standard")
    assert (c.capsules.bias, c.capsules.centred, c.autoencoder.code_noise) == (False, False, 0.0)
    assert (c.capsules.iterations, c.capsules.normalize, c.capsules.agreement) == (3, "lower", "cosine")
    assert c.autoencoder.optimizer == "sgd"
    for name in ("a", "b", "mu", "d"):
        assert (getattr(model.top, name) == 0).all(), name
    assert model.top.w_JNMI.abs().max() > 0


def test_a_stack_trains_from_the_bottom(tmp_path):
    model = train("digits", tmp_path / "run", quiet=True, **{**QUICK, "layers": "6x4,3x5"})
    below, top = model.stack
    assert (below.gate, below.neurons, below.lower, below.upper) == ("none", "binary", (36, 8), (6, 4))
    assert (top.gate, top.neurons, top.lower, top.upper) == ("winner", "gaussian", (6, 4), (3, 5))
    stages_seen = [line["stage"] for line in lines(tmp_path / "run")]
    assert stages_seen == ["autoencoder", "capsules-0", "capsules-1"]
    fresh = CapsulePoE(model.config, model.image)
    for depth in (0, 1):
        assert not torch.equal(model.stack[depth].w_JNMI, fresh.stack[depth].w_JNMI)
    images = np.random.default_rng(0).random((3, 28, 28, 1), np.float32)
    on, hidden = model.encode(images)
    assert hidden.shape == (3, 3, 5)
    assert model.reconstruct(images).shape == model.decode(hidden, on).shape == images.shape
    assert model.sample(5).images.shape == (5, 28, 28, 1)


def test_colour_folders_random_crops_and_any_size(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for k in range(40):
        height, width = rng.integers(20, 60, 2)
        Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8)).save(
            tmp_path / "photos" / f"{k}.png"
        )
    settings = {**QUICK, "size": 24, "crop": 20, "batch": 16}
    model = train(tmp_path / "photos", tmp_path / "run", quiet=True, **settings)
    assert model.image == (20, 20, 3)
    assert model.sample(3).images.shape == (3, 20, 20, 3)


def test_random_crops_belong_to_the_image():
    from capspoe.noise import Noise

    pixels = np.arange(2 * 10 * 12 * 1, dtype=np.uint8).reshape(2, 10, 12, 1)
    index = torch.tensor([5, 9])
    whole = stages.cropped(pixels, 8, Noise(0, 1, index))
    assert whole.shape == (2, 8, 8, 1)
    assert np.array_equal(whole[1:], stages.cropped(pixels[1:], 8, Noise(0, 1, index[1:])))
    places = {stages.cropped(pixels[:1], 8, Noise(0, s, index[:1]))[0, 0, 0, 0] for s in range(200)}
    assert len(places) == 3 * 5
    assert stages.cropped(pixels, 8, None)[0, 0, 0, 0] == pixels[0, 1, 2, 0]
    for noise in (Noise(0, 1, index), None):  # a side that is shorter than the crop stays whole
        assert stages.cropped(pixels, 11, noise).shape == (2, 10, 11, 1)


def test_every_epoch_sees_every_image_once_in_an_order_of_its_own():
    steps = list(stages.steps_in_order(10, 4, seed=3, stage=1, first=0, last=6))
    assert [step for step, _ in steps] == list(range(6))
    assert [len(index) for _, index in steps] == [4, 4, 2, 4, 4, 2]
    first, second = (np.concatenate([i for _, i in steps[s : s + 3]]) for s in (0, 3))
    assert sorted(first) == sorted(second) == list(range(10))
    assert list(first) != list(second)
    tail = list(stages.steps_in_order(10, 4, 3, 1, 4, 6))
    assert all(a == b and np.array_equal(i, j) for (a, i), (b, j) in zip(tail, steps[4:], strict=True))


def test_few_images_are_gone_through_more_often():
    settings = preset().replace(batch=10, least_steps=45).training
    assert stages.planned_steps(3, 1000, settings) == 300
    assert stages.planned_steps(3, 95, settings) == 50
    assert stages.planned_steps(3, 7, settings) == 45


def test_more_epochs_than_asked_for_are_said(tmp_path, capsys):
    settings = preset().replace(batch=10, least_steps=45).training
    journal = Journal(tmp_path, State("autoencoder", 0), math.inf)
    stages.tell_stretched(journal, 3, 95, settings)
    assert "5 epochs rather than 3, for --least-steps 45" in capsys.readouterr().err
    stages.tell_stretched(journal, 5, 95, settings)
    journal.close()
    assert capsys.readouterr().err == ""
    for name in ("small", "paper"):  # the presets do on MNIST what they say
        c = preset(name)
        steps = stages.planned_steps(c.autoencoder.autoencoder_epochs, 60_000, c.training)
        assert steps == 469 * c.autoencoder.autoencoder_epochs


@pytest.mark.parametrize(
    "wrong",
    [
        {"1.momentum_buffer": torch.ones(3)},
        {"momentum_buffer": torch.ones(3)},
        {"0.momentum_buffer": torch.ones(2)},
        {"0.momentum_buffer": torch.full((3,), math.nan)},
    ],
)
def test_an_optimisers_memory_comes_back_and_that_of_another_is_refused(wrong):
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
    with pytest.raises(RunError, match=r"memory .* does not fit the settings"):
        optimizers.restore_optimizer(other, wrong)


def test_the_gates_temperature_falls_to_one():
    values = [stages.gate_temperature(t, 30, 0.7) for t in np.linspace(0, 1, 101)]
    assert values[0] == pytest.approx(30)
    assert values[35] == pytest.approx(30**0.5)
    assert values[70:] == pytest.approx([1.0] * 31)
    assert all(a >= b for a, b in itertools.pairwise(values))


def test_a_window_survives_json_exactly():
    window = Window()
    for k in range(7):
        window.add(3, {"loss": 0.1 * k + 1e-17, "use": [0.3 * k, 0.7]})
    copy = Window(json.loads(json.dumps(window.stored())))
    assert copy.means() == window.means()
    assert copy.images == 21


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be between 1 and"),
        ({"layers": "20"}, "layers must look like"),
        ({"channels": 20}, "channels must be a multiple of 8"),
        ({"gate": "open"}, "gate cannot be 'open'"),
        ({"speed": 3}, "there is no setting 'speed'"),
        ({"preset": "huge"}, "there is no preset 'huge'"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_written(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        train("digits", tmp_path / "run", quiet=True, **settings)
    assert not (tmp_path / "run").exists()


def test_presets():
    assert preset("paper").autoencoder.channels == 128
    assert preset("small").autoencoder.channels == 32
    assert preset("small", "cifar10").data.crop == 28
    assert preset("small", neurons="binary").training.lr == pytest.approx(10 * preset("small").training.lr)


def test_the_command_line_does_what_python_does(run, tmp_path):
    done = capspoe("train", "digits", "--out", tmp_path / "run", *options(QUICK))
    assert done.returncode == 0, done.stderr
    assert "samples.png" in done.stdout
    assert same_weights(run, tmp_path / "run")


def test_a_whole_config_may_be_given_and_changed(tmp_path):
    config = preset("small", "mnist").replace(**QUICK)
    model = train("digits", tmp_path / "run", config=config, quiet=True, epochs=1)
    assert model.config == config.replace(data="digits", epochs=1)


def test_tensorboard(tmp_path):
    train("digits", tmp_path / "run", quiet=True, tensorboard=True, **QUICK)
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
