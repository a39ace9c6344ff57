"""A run from images to a trained network: interrupted and resumed, refused, and as the paper says."""

import io
import json
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

from capspoe import data, train
from capspoe.atomic import locked
from capspoe.config import preset
from capspoe.errors import DivergedError, InputError, RunError
from capspoe.memory import memory
from capspoe.model.autoencoder import ConvAutoencoder
from capspoe.run import checkpoint
from capspoe.run import train as training
from capspoe.run.checkpoint import State
from capspoe.run.log import Interrupted
from capspoe.run.model import CapsulePoE
from capspoe.training.targets import SpectralTargets
from runs import QUICK, capspoe, options, same_weights, stopping_after, weights_of

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 12, 12, 1), np.uint8)
SMALL = {**QUICK, "limit": None, "autoencoder_epochs": 1, "epochs": 1}


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_run_folder(run):
    names = ["checkpoints", "config.json", "environment.json", "metrics.jsonl", "samples.png"]
    assert sorted(p.name for p in run.iterdir()) == names
    environment = json.loads((run / "environment.json").read_text())
    assert (environment["seed"], environment["images"], environment["torch"]) == (0, 256, torch.__version__)
    with Image.open(run / "samples.png") as picture:
        assert picture.size == ((4 * 30 - 2) * 2, (4 * 30 - 2) * 2)
    first, second, third = lines(run)
    assert (first["stage"], first["step"]) == ("autoencoder", 32)
    assert (second["stage"], second["step"]) == ("capsules-0", 48)
    assert first.keys() >= {"loss", "gradient_norm", "images_per_second"}
    assert second.keys() >= {
        "reconstruction", "baseline", "use", "confidence", "routing_entropy", "weight_norm", "gradient_norm",
    }  # fmt: skip
    assert sum(second["use"]) == pytest.approx(1, abs=1e-4)
    assert (third["stage"], third["step"]) == ("recognition", 40)


def test_training_learns(model, images):
    """The trained network reconstructs test images better than an untrained one, the autoencoder alone better yet."""
    fresh = CapsulePoE.build(model.config, model.image)

    def error(network, through="capsules"):
        return ((network.reconstruct(images, through) - images / 255) ** 2).mean()

    assert error(model) < 0.8 * error(fresh)
    assert error(model, "autoencoder") < error(model)


def test_the_same_seed_gives_the_same_weights_and_another_does_not(run, tmp_path):
    train("digits", tmp_path / "again", quiet=True, **QUICK)
    assert same_weights(run, tmp_path / "again")
    train("digits", tmp_path / "other", quiet=True, seed=1, **QUICK)
    assert not same_weights(run, tmp_path / "other")


@pytest.mark.parametrize("steps", [1, 31, 32, 33, 79, 80])
def test_an_interrupted_run_resumed_equals_one_left_alone(run, tmp_path, steps):
    """32 steps of the first stage and 48 of the second: weights, metrics and picture."""
    settings = {**QUICK, "checkpoint_seconds": 1000.0}
    with stopping_after(steps), pytest.raises(Interrupted, match="run the same command again to resume"):
        train("digits", tmp_path / "run", quiet=True, **settings)
    state = checkpoint.newest(tmp_path / "run").state
    assert (state.stage, state.step) == (("autoencoder", steps) if steps <= 32 else ("capsules-0", steps - 32))
    train("digits", tmp_path / "run", quiet=True, **settings)
    assert same_weights(run, tmp_path / "run")
    assert (run / "samples.png").read_bytes() == (tmp_path / "run" / "samples.png").read_bytes()
    ours, expected = (
        [{k: v for k, v in line.items() if k != "images_per_second"} for line in lines(folder)]
        for folder in (tmp_path / "run", run)
    )
    assert ours == expected


def test_persistent_chains_go_on_where_they_were(tmp_path):
    settings = {**QUICK, "limit": 128, "autoencoder_epochs": 1, "chains": 5}
    train("digits", tmp_path / "alone", quiet=True, **settings)
    with stopping_after(14), pytest.raises(Interrupted):
        train("digits", tmp_path / "run", quiet=True, **settings)
    train("digits", tmp_path / "run", quiet=True, **settings)
    assert same_weights(tmp_path / "alone", tmp_path / "run")


def test_the_targets_of_the_gate_are_found_once(run, tmp_path, monkeypatch):
    with stopping_after(50), pytest.raises(Interrupted):
        train("digits", tmp_path / "run", quiet=True, **QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(SpectralTargets, "find", lambda *_: pytest.fail("found again"))
        train("digits", tmp_path / "run", quiet=True, **QUICK)
    assert same_weights(run, tmp_path / "run")


def test_a_signal_saves_and_exits_with_130(tmp_path):
    settings = {**QUICK, "autoencoder_epochs": 60}
    words = ["train", "digits", "--out", str(tmp_path / "run"), *options(settings)]
    process = subprocess.Popen(
        [sys.executable, "-m", "capspoe", *words],
        stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    while len(checkpoint.numbered(tmp_path / "run")) < 2 and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "run the same command again to resume" in errors
    assert "Traceback" not in errors
    assert 0 < checkpoint.newest(tmp_path / "run").state.step < 480
    assert not list((tmp_path / "run").rglob(".*"))


def test_other_settings_are_refused_and_resume_keeps_the_stored_ones(tmp_path):
    with stopping_after(3), pytest.raises(Interrupted):
        train("digits", tmp_path / "run", quiet=True, **QUICK)
    with pytest.raises(RunError, match=r"other settings .*seed 0 -> 5"):
        train("digits", tmp_path / "run", quiet=True, **{**QUICK, "seed": 5})
    train("digits", tmp_path / "run", quiet=True, resume=True, threads=1)
    assert checkpoint.newest(tmp_path / "run").state.stage == "done"
    assert checkpoint.open_run(tmp_path / "run").config.epochs == QUICK["epochs"]


def test_the_number_of_capsules_is_found_once_and_stored(tmp_path, monkeypatch):
    counted = []
    monkeypatch.setattr(training.spectral, "count_groups", lambda images, *_: counted.append(images.shape) or 3)
    for _ in range(2):
        model = train("digits", tmp_path / "run", quiet=True, **QUICK | {"layers": "autox6", "epochs": 1})
        assert model.top.upper == (3, 6)
    assert counted == [(256, 28, 28, 1)]
    assert checkpoint.open_run(tmp_path / "run").config.layers == "3x6"
    for layers in ("auto", "autox6,3x2", "automaticx2"):
        with pytest.raises(InputError, match="layers must look like"):
            train("digits", tmp_path / "other", quiet=True, **QUICK | {"layers": layers})


def test_nothing_to_resume(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        train("digits", tmp_path / "none", resume=True, quiet=True)
    assert not (tmp_path / "none").exists()


def test_an_exported_network_cannot_be_resumed(run, tmp_path):
    shutil.copy(run / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match="is an exported network, which cannot be resumed"):
        train("digits", tmp_path, quiet=True, **QUICK)


def test_a_second_training_refuses(run):
    with locked(run, wait=False), pytest.raises(RunError, match="another training is writing to"):
        train("digits", run, quiet=True, **QUICK)


def test_a_stage_that_the_network_does_not_have_is_refused(run_copy):
    checkpoint.save(run_copy, State("capsules-7"), weights_of(run_copy), {})
    with pytest.raises(RunError, match="the stage 'capsules-7' does not fit the settings"):
        train("digits", run_copy, quiet=True, **QUICK)


def test_a_diverging_run_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    settings = {**QUICK, "chains": 0, "learning_rate": 50.0, "balance_rate": 0.0}
    with pytest.raises(DivergedError, match=r"(diverged|collapsed).* at step \d+.*run again"):
        train("digits", tmp_path / "run", quiet=True, **settings)
    saved = checkpoint.newest(tmp_path / "run")
    assert all(torch.isfinite(v).all() for v in saved.weights.values())


def test_a_loss_that_is_no_number_stops_the_run_before_it_is_saved(run, tmp_path, monkeypatch):
    real, calls = ConvAutoencoder.loss, []

    def loss(network, x, noise):
        calls.append(x)
        return real(network, x, noise) * (torch.nan if len(calls) == 9 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(ConvAutoencoder, "loss", loss)
        with pytest.raises(DivergedError, match="'autoencoder' at step 9: loss is not finite"):
            train("digits", tmp_path / "run", quiet=True, **QUICK)
    assert checkpoint.newest(tmp_path / "run").state.step == 8
    train("digits", tmp_path / "run", quiet=True, **QUICK)
    assert same_weights(run, tmp_path / "run")


def test_literal_is_what_the_paper_says(tmp_path):
    settings = {k: v for k, v in SMALL.items() if k != "prior_components"} | {"limit": 64}
    model = train("digits", tmp_path / "run", literal=True, quiet=True, **settings)
    c = model.config
    assert (c.gate, c.neurons, c.prior, c.gate_targets) == ("none", "binary", "standard", "none")
    assert (c.bias, c.centred, c.code_noise, c.sharpness) == (False, False, 0.0, 1.0)
    assert (c.iterations, c.normalize, c.agreement) == (3, "lower", "cosine")
    assert c.autoencoder_optimizer == "sgd"
    for name in ("a", "b", "mu", "d"):
        assert (getattr(model.top, name) == 0).all(), name
    assert model.top.w_JNMI.abs().max() > 0


def test_a_stack_trains_from_the_bottom(tmp_path):
    settings = {**QUICK, "limit": 64, "layers": "6x4,3x5"}
    with stopping_after(2 * 4 + 2 * 6 + 3), pytest.raises(Interrupted):  # in the upper layer
        train("digits", tmp_path / "run", quiet=True, **settings)
    state, below = checkpoint.newest(tmp_path / "run").state, weights_of(tmp_path / "run")["layers.0.w_JNMI"]
    assert (state.stage, state.step) == ("capsules-1", 3)
    model = train("digits", tmp_path / "run", quiet=True, **settings)
    stages = ["autoencoder", "capsules-0", "capsules-1", "recognition"]
    assert [line["stage"] for line in lines(tmp_path / "run")] == stages
    fresh = CapsulePoE.build(model.config, model.image).layers
    assert torch.equal(model.layers[0].w_JNMI, below)
    assert not any(torch.equal(model.layers[k].w_JNMI, fresh[k].w_JNMI) for k in (0, 1))
    assert (model.layers[0].upper, model.top.lower, model.top.upper) == ((6, 4), (6, 4), (3, 5))


def test_colour_folders_random_crops_and_any_size(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for k in range(40):
        height, width = rng.integers(20, 60, 2)
        photo = Image.fromarray(rng.integers(0, 255, (height, width, 3), np.uint8))
        photo.save(tmp_path / "photos" / f"{k}.png")
    settings = {**SMALL, "size": 24, "crop": 20, "batch_size": 16}
    model = train(tmp_path / "photos", tmp_path / "run", quiet=True, **settings)
    assert model.image == (20, 20, 3)
    assert model.sample(3).images.shape == (3, 20, 20, 3)
    with pytest.raises(InputError, match="a crop of 25 is larger than the images, which are 24x24"):
        train(tmp_path / "photos", tmp_path / "large", quiet=True, **{**settings, "crop": 25})


def test_extra_epochs_are_logged(tmp_path, capsys):
    pixels = data.SequenceDataset(list(PIXELS), data.Prepare.of(None, None, None))
    train(
        pixels,
        tmp_path / "run",
        channels=8,
        layers="2x3",
        batch_size=30,
        autoencoder_epochs=3,
        epochs=1,
        min_steps=6,
        prior_components=1,
    )
    assert capsys.readouterr().err.count("3 epochs instead of 1, to reach --min-steps 6") == 1


@pytest.mark.parametrize("wrong", [{"epochs": 0}, {"speed": 3}, {"preset": "huge"}, {"crop": 60}])
def test_wrong_settings_are_refused_before_anything_is_written(tmp_path, wrong):
    with pytest.raises(InputError):
        train("digits", tmp_path / "run", quiet=True, **wrong)
    assert not (tmp_path / "run").exists()


def test_the_command_line_does_what_python_does(run, tmp_path):
    done = capspoe("train", "digits", "--out", tmp_path / "run", "--tensorboard", *options(QUICK))
    assert done.returncode == 0, done.stderr
    assert "samples.png" in done.stdout
    assert same_weights(run, tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_a_callback_gets_every_line_of_the_metrics(tmp_path):
    lines: list[dict] = []
    train("digits", tmp_path / "run", quiet=True, callback=lines.append, **QUICK)
    written = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert lines == [json.loads(line) for line in written]
    assert {line["stage"] for line in lines} == {"autoencoder", "capsules-0", "recognition"}


def test_a_whole_config_may_be_given_and_changed(tmp_path):
    config = preset("small", "mnist").replace(**{**SMALL, "limit": 40})
    model = train("digits", tmp_path / "run", config=config, quiet=True, seed=3)
    assert model.config == config.replace(data="digits", seed=3)


class Stream:
    """Pairs of an image and its label, made when asked for."""

    def __init__(self):
        self.asked = 0

    def __len__(self):
        return 60

    def __getitem__(self, k):
        self.asked += 1
        return PIXELS[k, :, :, 0], k % 10


def test_images_from_python_train_the_network_of_a_file(tmp_path, monkeypatch):
    """A file, standard input, a list, and a stream that is read when needed."""
    np.save(tmp_path / "images.npy", PIXELS)
    rows = data.open_dataset(tmp_path / "images.npy").batch(range(50))
    train(tmp_path / "images.npy", tmp_path / "file", quiet=True, **{**SMALL, "limit": 50})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper((tmp_path / "images.npy").open("rb")))
    train("-", tmp_path / "piped", quiet=True, **{**SMALL, "limit": 50})
    assert same_weights(tmp_path / "file", tmp_path / "piped")
    train(list(rows), tmp_path / "list", quiet=True, **SMALL)
    assert same_weights(tmp_path / "file", tmp_path / "list")
    with pytest.raises(InputError, match="trained on images from Python; pass them to"):
        train("digits", tmp_path / "list", resume=True, quiet=True)
    model = CapsulePoE.load(tmp_path / "list")
    with pytest.raises(InputError, match="from Python, which are not kept; name images"):
        data.open_for(model.config, model.image)
    stream = Stream()
    with monkeypatch.context() as patch:
        patch.setattr(training, "IN_MEMORY", 0)
        train(stream, tmp_path / "stream", quiet=True, **SMALL)
    # The shape; fingerprint, that of a sample of 64, one epoch of stage 1, codes; the choice of a view and its
    # components; its points, in a piece filled with the last image; scenes.
    assert stream.asked == 1 + 4 * 60 + 2 * 60 + 60 + 60
    train(PIXELS, tmp_path / "array", quiet=True, **SMALL)
    assert same_weights(tmp_path / "stream", tmp_path / "array")


def test_images_are_kept_in_memory_only_where_there_is_room(monkeypatch):
    config = preset().replace(limit=None)
    monkeypatch.setattr(training, "memory", lambda: 4 * PIXELS.nbytes)
    assert isinstance(training.open_images(config, list(PIXELS)), data.ArrayDataset)
    monkeypatch.setattr(training, "memory", lambda: 4 * PIXELS.nbytes - 4)
    assert isinstance(training.open_images(config, list(PIXELS)), data.SequenceDataset)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_the_limits_of_the_process_count():
    code = "from capspoe.memory import memory; print(memory())"
    done = subprocess.run(["sh", "-c", f"ulimit -d 600000; {sys.executable} -c '{code}'"], capture_output=True)
    assert int(done.stdout) == 600_000 * 1024 < memory()
