"""The log of a training: metrics.jsonl, progress with an estimate, and when to save or stop."""

import json
import math
import os
import signal

import pytest
import torch

from capspoe.config import Config
from capspoe.errors import DivergedError
from capspoe.run import checkpoint, log
from capspoe.run.checkpoint import DONE, State
from capspoe.run.log import Interrupted, TrainingLog, Window


def steps(training_log, count, done=0, stage_steps=None, value=lambda step: step):
    """Log steps of a stage whose metric is a function of the step."""
    with training_log.stage("autoencoder", "1 autoencoder", stage_steps or count, done):
        for step in range(done + 1, count + 1):
            training_log.step(step, 8, {"loss": float(value(step)), "use": [0.25, step / 4]}, show=("loss",))


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def folder(tmp_path):
    checkpoint.create(tmp_path, Config(), (28, 28, 1))
    return tmp_path


def test_every_fifty_steps_are_a_line_of_means(folder):
    steps(TrainingLog(folder, State(), 1e6, quiet=True), 120)
    found = lines(folder)
    assert [(line["stage"], line["step"], line["loss"]) for line in found] == [
        ("autoencoder", 50, 25.5), ("autoencoder", 100, 75.5), ("autoencoder", 120, 110.5),
    ]  # fmt: skip
    assert found[2]["use"] == [0.25, 110.5 / 4]
    assert all(line["images_per_second"] > 0 for line in found)


def test_a_resumed_log_has_the_lines_of_one_left_alone(folder, tmp_path_factory):
    def value(step):
        return 0.1 * step + 1e-17  # no sum of them is exact

    whole = tmp_path_factory.mktemp("whole")
    steps(TrainingLog(whole, State(), 1e6, quiet=True), 120, value=value)
    first = TrainingLog(folder, State(), 1e6, quiet=True)
    steps(first, 70, stage_steps=120, value=value)
    first.save("autoencoder", 70, {}, {})
    steps(first, 110, done=70, stage_steps=120, value=value)  # lost: it is killed before the next checkpoint
    first.close()
    state = checkpoint.newest(folder).state
    assert (state.step, state.window["steps"], state.window["images"]) == (70, 20, 160)
    again = TrainingLog(folder, state, 1e6, quiet=True)
    steps(again, 120, done=70, value=value)
    again.close()
    for found in (ours := lines(folder), theirs := lines(whole)):
        for line in found:
            del line["images_per_second"]
    assert ours == theirs


def test_damaged_metrics_are_named_and_readable_lines_kept(folder, capsys):
    first = TrainingLog(folder, State(), 1e6)
    steps(first, 100)
    first.save("autoencoder", 100, {}, {})
    first.close()
    state = checkpoint.newest(folder).state
    TrainingLog(folder, state, 1e6).close()
    assert "damaged" not in capsys.readouterr().err
    path = folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step": 50', b"?step?: 50"))
    again = TrainingLog(folder, state, 1e6)
    assert "is damaged; kept the 1 readable lines" in capsys.readouterr().err
    assert [line["step"] for line in lines(folder)] == [100]
    again.save("autoencoder", 100, {}, {})
    again.close()
    TrainingLog(folder, checkpoint.newest(folder).state, 1e6).close()
    assert "damaged" not in capsys.readouterr().err


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_metric_that_is_not_finite_stops_training(folder, bad):
    with pytest.raises(DivergedError, match="in stage 'autoencoder' at step 3: loss is not finite; lower"):
        steps(TrainingLog(folder, State(), 1e6, quiet=True), 9, value=lambda step: bad if step == 3 else 0)
    assert lines(folder) == []


def test_progress_says_how_long_is_left(folder, capsys, monkeypatch):
    clock = iter(range(10**6))
    monkeypatch.setattr(log.time, "monotonic", lambda: 0.1 * next(clock))
    steps(TrainingLog(folder, State(), 1e6), 200, done=50)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "1 autoencoder: 200 steps, resumed at 50"
    assert said[-1].split() == ["200/200", *said[-1].split()[1:3], "0", "s", "left", "loss", "175.5000"]


def test_the_estimate(folder, capsys, monkeypatch):
    """Two seconds a step: 100 steps after 50 done take 100 s, and so will the 50 that are left."""
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    training_log = TrainingLog(folder, State(), 1e6)
    with training_log.stage("autoencoder", "1 autoencoder", 150, 50):
        for step in range(51, 101):
            now[0] += 2
            training_log.step(step, 8, {"loss": 0.5}, show=("loss",))
    assert capsys.readouterr().err.splitlines()[-1] == "  100/150  4 images/s  100 s left  loss 0.5000"


def test_it_is_time_to_save(folder, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
    training_log = TrainingLog(folder, State(seconds=5.5), 20, quiet=True)
    now[0] = 19.9
    assert not training_log.save_due()
    now[0] = 20
    assert training_log.save_due()
    training_log.save("autoencoder", 5, {"w": torch.ones(2)}, {"0.m": torch.zeros(2)})
    assert not training_log.save_due()
    saved = checkpoint.newest(folder)
    assert (saved.state.stage, saved.state.step, saved.state.seconds) == ("autoencoder", 5, 25.5)
    assert torch.equal(saved.weights["w"], torch.ones(2))
    assert saved.optimizer.keys() == {"0.m"}


def test_the_last_checkpoint_knows_all_other_files(folder):
    training_log = TrainingLog(folder, State(), 20, quiet=True)
    for name in ("environment.json", "samples.png"):
        (folder / name).write_text(name)
    steps(training_log, 3)
    training_log.save("autoencoder", 3, {}, {})
    assert checkpoint.newest(folder).state.files.keys() == {"environment.json"}
    training_log.save(DONE, 0, {}, {})
    state = checkpoint.newest(folder).state
    assert state.files.keys() == {"environment.json", "samples.png", "metrics.jsonl"}
    assert checkpoint.changed_files(folder, state) == []
    (folder / "samples.png").write_text("other")
    (folder / "environment.json").unlink()
    assert checkpoint.changed_files(folder, state) == ["environment.json", "samples.png"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_saves_and_the_second_ends_at_once(folder, number, capfd):
    before = signal.getsignal(number)
    training_log = TrainingLog(folder, State(), 1e6)
    with training_log.stopping_on_signals():
        assert not training_log.save_due()
        os.kill(os.getpid(), number)
        assert training_log.save_due()
        with pytest.raises(Interrupted, match="stopped and saved; run the same command again to resume"):
            training_log.save("autoencoder", 7, {}, {})
        assert checkpoint.newest(folder).state.step == 7
        with pytest.raises(SystemExit) as stop:
            os.kill(os.getpid(), number)
        assert stop.value.code == 128 + number
    assert signal.getsignal(number) is before
    assert "press Ctrl-C again to stop at once" in capfd.readouterr().err


def test_a_window_is_exact_in_json():
    window = Window()
    for k in range(7):
        window.add(3, {"loss": 0.1 * k + 1e-17, "use": [0.3 * k, 0.7]})
    copy = Window(**json.loads(json.dumps(vars(window))))
    assert copy.means() == window.means()
    assert window.means()["use"] == [sum(0.3 * k for k in range(7)) / 7, sum([0.7] * 7) / 7]
    assert (copy.steps, copy.images) == (7, 21)
