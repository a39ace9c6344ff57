"""Several processes are one: the same weights, one writer, and none that waits for ever."""

import json
import os
import re
import signal
import time

import numpy as np
import pytest
import torch

from capspoe import checkpoint, distributed
from capspoe.encoding import write_encoded
from capspoe.training import train
from runs import QUICK, options, weights_of
from together import peers, run, started, torchrun, workers_of

SETTINGS = {**QUICK, "limit": 250, "autoencoder_epochs": 2, "epochs": 3}  # the last batch has 26 images


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    train("digits", folder, quiet=True, **SETTINGS)
    return folder


def assert_close(one, other):
    left, right = weights_of(one), weights_of(other)
    assert left.keys() == right.keys()
    for name in left:
        scale = left[name].abs().max().clamp_min(1e-3)
        assert ((left[name] - right[name]).abs().max() / scale).item() < 1e-3, name


def test_two_processes_train_the_network_of_one_and_one_of_them_writes(alone, tmp_path):
    folder = tmp_path / "run"
    done = run(torchrun(2, "train", "digits", "--out", folder, *options(SETTINGS)))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("samples.png") == 1
    assert done.stderr.count("1 autoencoder: 16 steps") == 1
    assert_close(alone, folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in alone.iterdir())
    assert json.loads((folder / "environment.json").read_text())["processes"] == 2
    ours, theirs = ((f / "metrics.jsonl").read_text().splitlines() for f in (folder, alone))
    assert len(ours) == len(theirs)
    for line, expected in zip(map(json.loads, ours), map(json.loads, theirs), strict=True):
        for name in set(expected) - {"images_per_second", "stage"}:
            assert line[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4), name
    out = tmp_path / "encoded.npz"
    done = run(torchrun(2, "encode", folder, "--out", out))
    assert done.stdout.split() == [str(out)], done.stderr
    assert write_encoded(folder, tmp_path / "by_one.npz")
    with np.load(out) as together, np.load(tmp_path / "by_one.npz") as by_one:
        assert together["on"].shape == by_one["on"].shape
        assert np.allclose(together["hidden"], by_one["hidden"], atol=1e-4)
        assert np.array_equal(together["labels"], by_one["labels"])


def test_processes_encode_blocks_in_turn(alone, tmp_path):
    out = tmp_path / "encoded.npz"
    code = "from capspoe import encoding\nfrom pathlib import Path\nencoding.BLOCK = 50\n"
    code += f"print(encoding.write_encoded(Path({str(alone)!r}), Path({str(out)!r})))"
    ended = peers(3, code)
    assert [(code, said) for code, said, _ in ended] == [(0, "True\n"), (0, "False\n"), (0, "False\n")], ended
    assert write_encoded(alone, tmp_path / "by_one.npz")
    with np.load(out) as together, np.load(tmp_path / "by_one.npz") as by_one:
        assert len(by_one["on"]) > 150  # four blocks for three processes
        for name in ("on", "hidden", "labels"):
            np.testing.assert_allclose(together[name], by_one[name], atol=1e-5)


def test_a_killed_process_is_started_again_and_the_run_goes_on(alone, tmp_path):
    folder = tmp_path / "run"
    command = torchrun(2, "train", "digits", "--out", folder, *options(SETTINGS), restarts=1)
    with started(command) as process:
        while process.poll() is None and len(checkpoint.numbered(folder)) < 2:
            time.sleep(0.02)
        os.kill(workers_of(process)[-1], signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert re.search(r"1 autoencoder: 16 steps, resumed at \d+|2 capsules: 24 steps, resumed at \d+", errors)
    assert_close(alone, folder)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_saves_once_and_stops_all(tmp_path, number):
    folder, settings = tmp_path / "run", {**SETTINGS, "autoencoder_epochs": 100, "checkpoint_seconds": 1e6}
    with started(torchrun(2, "train", "digits", "--out", folder, *options(settings))) as process:
        record = folder / "metrics.jsonl"  # has its first line after 50 steps
        while process.poll() is None and not (record.exists() and record.stat().st_size):
            time.sleep(0.02)
        workers = workers_of(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert errors.count("stopped and saved; the same command again carries on") == 1, errors
    assert len(workers) == 2
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    assert len(checkpoint.numbered(folder)) == 1
    saved = checkpoint.newest(folder)
    assert 50 <= saved.state.step < 800
    assert saved.state.stage == "autoencoder"


def test_an_error_of_one_process_stops_all_with_one_clear_line(tmp_path):
    with checkpoint.locked(tmp_path):
        done = run(torchrun(2, "train", "digits", "--out", tmp_path, *options(SETTINGS)))
    assert done.returncode == 1
    assert done.stderr.count("capspoe: another training is writing to") == 1
    assert "process 1 stopped because process 0 failed" in done.stderr


def test_what_processes_exchange():
    code = """
import json, numpy as np, torch
from capspoe import distributed as d
from capspoe.errors import InputError, PeerError
with d.joined():
    shares = [d.share(np.arange(10, 10 + n)) for n in (7, 3, 2)]
    loss, grad = torch.tensor(float(d.rank())), torch.full((2, 2), float(d.rank()))
    d.average(shares[0].weight, loss, grad)
    own = torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last) * (d.rank() + 1)
    d.same(own)
    try:
        with d.together():
            if d.rank() > 0:
                raise InputError(f"{d.rank()} cannot")
        caught = None
    except (InputError, PeerError) as error:
        caught = str(error)
    print(json.dumps({
        "images": [s.images.tolist() for s in shares], "weights": [s.weight for s in shares],
        "batch": [s.batch for s in shares], "loss": loss.item(), "grad": grad.flatten().tolist(),
        "own": own.unique().tolist(), "caught": caught, "largest": d.largest(5 - d.rank()),
        "of_first": d.of_first(lambda: d.rank()), "gathered": d.gathered(d.rank() * "x"),
        "part": d.part(np.arange(4)).tolist(),
    }))
"""
    ended = peers(3, code)
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    said = [json.loads(output) for _, output, _ in ended]
    assert [s["images"][0] for s in said] == [[10, 11, 12], [13, 14], [15, 16]]
    assert [s["images"][2] for s in said] == [
        [10],
        [11],
        [10],
    ]  # the third has nothing to do, and repeats one
    assert [s["weights"][2] for s in said] == [0.5, 0.5, 0.0]
    assert [sum(s["weights"][k] for s in said) for k in range(3)] == pytest.approx([1, 1, 1])
    assert [s["part"] for s in said] == [[0, 1], [2], [3]]
    mean = (0 * 3 + 1 * 2 + 2 * 2) / 7
    for s in said:
        assert s["batch"] == [7, 3, 2]
        assert s["loss"] == pytest.approx(mean)
        assert s["grad"] == pytest.approx([mean] * 4)
        assert s["own"] == [1.0]
        assert (s["largest"], s["of_first"], s["gathered"]) == (5, 0, ["", "x", "xx"])
    assert [s["caught"] for s in said] == [
        "process 0 stopped because process 1 failed",
        "1 cannot",
        "process 2 stopped because process 1 failed",
    ]


def test_nobody_waits_for_a_process_that_has_ended():
    code = """
import os, sys, torch
from capspoe import distributed as d
from capspoe.errors import PeerError
with d.joined():
    d.wait()
    if d.rank() == 1:
        os._exit(7)
    try:
        for _ in range(1000):
            d.all_sum(torch.ones(1000))
    except PeerError as error:
        sys.exit(str(error))
"""
    ended = peers(3, code)
    assert [code for code, _, _ in ended] == [1, 7, 1]
    assert "process 0 stopped because another process of this run has ended" in ended[0][2]


def test_more_processes_than_images_in_a_batch(tmp_path):
    settings = {**QUICK, "limit": 9, "batch": 2, "autoencoder_epochs": 1, "epochs": 2}
    train("digits", tmp_path / "alone", quiet=True, **settings)
    code = f"from capspoe.training import train; train('digits', {str(tmp_path / 'run')!r}, quiet=True, "
    code += f"tensorboard=True, **{settings})"
    ended = peers(3, code)
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    assert_close(tmp_path / "alone", tmp_path / "run")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1  # one of them writes


def test_alone_nothing_is_exchanged_and_nothing_changes():
    index, tensor = np.arange(5), torch.ones(3)
    mine = distributed.share(index)
    assert mine.images is index
    assert (mine.weight, mine.batch) == (1.0, 5)
    distributed.average(0.5, tensor)
    distributed.same(tensor)
    assert torch.equal(tensor, torch.ones(3))
    assert (distributed.largest(3), distributed.of_first(lambda: 4), distributed.gathered(5)) == (3, 4, [5])
    with distributed.joined():
        assert (distributed.world(), distributed.rank(), distributed.first()) == (1, 0, True)
