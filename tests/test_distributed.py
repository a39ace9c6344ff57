"""Several processes are one: the same weights, one writer, and none that waits forever."""

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from capspoe import distributed, train
from capspoe.atomic import locked
from capspoe.run import checkpoint
from runs import QUICK, options, weights_of
from together import peers, run, started, torchrun, workers_of

SETTINGS = {**QUICK, "limit": 250, "autoencoder_epochs": 2, "epochs": 3, "chains": 3}  # the last batch has 26 images


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


def test_a_killed_process_is_restarted_and_two_train_the_network_of_one(alone, tmp_path):
    """Process 0 alone writes and prints; torchrun restarts both, and they resume."""
    folder = tmp_path / "run"
    command = torchrun(2, "train", "digits", "--out", folder, *options(SETTINGS), restarts=1)
    with started(command) as process:
        while process.poll() is None and len(checkpoint.numbered(folder)) < 2:
            time.sleep(0.02)
        os.kill(workers_of(process)[-1], signal.SIGKILL)
        said, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert re.search(r"1 autoencoder: 16 steps, resumed at \d+|2 capsules: 24 steps, resumed at \d+", errors)
    assert errors.count("fitting the prior of every capsule") == 1
    assert said.count("samples.png") == 1
    assert_close(alone, folder)
    assert sorted(p.name for p in folder.iterdir()) == sorted(p.name for p in alone.iterdir())
    assert json.loads((folder / "environment.json").read_text())["processes"] == 2
    ours, theirs = ((f / "metrics.jsonl").read_text().splitlines() for f in (folder, alone))
    for line, expected in zip(map(json.loads, ours), map(json.loads, theirs), strict=True):
        for name in set(expected) - {"images_per_second", "stage"}:
            assert line[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_signal_saves_once_and_stops_all(tmp_path, number):
    folder, settings = tmp_path / "run", {**SETTINGS, "autoencoder_epochs": 100, "checkpoint_seconds": 1e6}
    with started(torchrun(2, "train", "digits", "--out", folder, *options(settings))) as process:
        metrics = folder / "metrics.jsonl"  # has its first line after 50 steps
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.02)
        workers = workers_of(process)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert errors.count("stopped and saved; run the same command again to resume") == 1, errors
    assert len(workers) == 2
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    assert len(checkpoint.numbered(folder)) == 1
    state = checkpoint.newest(folder).state
    assert state.stage == "autoencoder"
    assert 50 <= state.step < 800


def test_an_error_of_one_process_stops_all_with_one_clear_line(tmp_path):
    with locked(tmp_path, wait=False):
        done = run(torchrun(2, "train", "digits", "--out", tmp_path, *options(SETTINGS)))
    assert done.returncode == 1
    assert done.stderr.count("capspoe: another training is writing to") == 1
    assert "process 1 stopped because process 0 failed" in done.stderr


def test_what_processes_exchange():
    code = """
import json, os, sys, numpy as np, torch
from capspoe import distributed as d
from capspoe.errors import InputError, PeerError
with d.process_group():
    shards = [d.shard(np.arange(10, 10 + n)) for n in (7, 3, 2)]
    loss, grad = torch.tensor(float(d.rank())), torch.full((2, 2), float(d.rank()))
    d.all_reduce_mean(shards[0].weight, loss, grad)
    own = torch.ones(2, 3, 2, 2).to(memory_format=torch.channels_last) * (d.rank() + 1)
    d.broadcast(own)
    try:
        with d.fail_together():
            if d.rank() > 0:
                raise InputError(f"{d.rank()} cannot")
        caught = None
    except (InputError, PeerError) as error:
        caught = str(error)
    print(json.dumps({
        "images": [s.images.tolist() for s in shards], "weights": [s.weight for s in shards],
        "batch": [s.batch for s in shards], "loss": loss.item(), "grad": grad.flatten().tolist(),
        "own": own.unique().tolist(), "caught": caught, "max": d.all_reduce_max(5 - d.rank()),
        "object": d.broadcast_object(lambda: d.rank()), "gathered": d.gather(d.rank() * "x"),
        "split": d.split(np.arange(4)).tolist(), "machine": d.local_world_size(),
    }), flush=True)
    if d.rank() == 1:
        os._exit(7)
    try:
        for _ in range(1000):
            d.all_reduce(torch.ones(1000))
    except PeerError as error:
        sys.exit(str(error))
"""
    ended = peers(3, code)
    assert [code for code, _, _ in ended] == [1, 7, 1], ended
    assert "process 0 stopped because another process of this run has ended" in ended[0][2]
    said = [json.loads(output) for _, output, _ in ended]
    assert [s["images"][0] for s in said] == [[10, 11, 12], [13, 14], [15, 16]]
    assert [s["images"][2] for s in said] == [[10], [11], [10]]  # the third has none, and repeats one
    assert [s["weights"][2] for s in said] == [0.5, 0.5, 0.0]
    assert [sum(s["weights"][k] for s in said) for k in range(3)] == pytest.approx([1, 1, 1])
    assert [s["split"] for s in said] == [[0, 1], [2], [3]]
    mean = (0 * 3 + 1 * 2 + 2 * 2) / 7
    for s in said:
        assert s["batch"] == [7, 3, 2]
        assert s["loss"] == pytest.approx(mean)
        assert s["grad"] == pytest.approx([mean] * 4)
        assert s["own"] == [1.0]
        assert (s["max"], s["object"], s["gathered"], s["machine"]) == (5, 0, ["", "x", "xx"], 3)
    assert [s["caught"] for s in said] == [
        "process 0 stopped because process 1 failed",
        "1 cannot",
        "process 2 stopped because process 1 failed",
    ]


def test_processes_that_restart_do_not_meet_the_dead():
    """Tokens of dead processes are still in the store: all agree on a name only when all are new."""
    store, agreed = torch.distributed.HashStore(), set()
    for start in range(2):
        with ThreadPoolExecutor(3) as pool:
            calls = [pool.submit(distributed.rendezvous_name, store, k, 3) for k in (0, 1)]
            time.sleep(0.2)
            assert not any(call.done() for call in calls)  # the third has not started, or is the dead one
            calls.append(pool.submit(distributed.rendezvous_name, store, 2, 3))
            agreed |= {call.result(10) for call in calls}
        assert len(agreed) == start + 1


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux to list threads")
def test_no_thread_of_the_group_outlives_it():
    """Such a thread may still hold a tensor; to free it while the interpreter ends, it would abort the process.

    See github.com/pytorch/pytorch/pull/179291.
    """
    code = """
from pathlib import Path
import torch.distributed as dist
from capspoe import distributed as d
def threads():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return sum("gloo" in name or "tcpstore" in name for name in names)
with d.process_group():
    cycle = [dist.group.WORLD]
    cycle.append(cycle)
    del cycle
    d.gather(d.rank())
    inside = threads()
print(inside > 0, threads())
"""
    ended = peers(2, code)
    assert [(status, output) for status, output, _ in ended] == [(0, "True 0\n")] * 2, ended


@pytest.mark.slow
def test_more_processes_than_images_in_a_batch(tmp_path):
    settings = {**QUICK, "limit": 9, "batch_size": 2, "autoencoder_epochs": 1, "epochs": 2}
    train("digits", tmp_path / "alone", quiet=True, **settings)
    code = f"from capspoe import train; train('digits', {str(tmp_path / 'run')!r}, quiet=True, "
    code += f"tensorboard=True, **{settings})"
    ended = peers(3, code)
    assert [code for code, _, _ in ended] == [0, 0, 0], ended
    assert_close(tmp_path / "alone", tmp_path / "run")
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 1  # one of them writes


def test_one_process_exchanges_nothing():
    index, tensor = np.arange(5), torch.ones(3)
    mine = distributed.shard(index)
    assert mine.images is index
    assert (mine.weight, mine.batch) == (1.0, 5)
    distributed.all_reduce_mean(0.5, tensor)
    distributed.broadcast(tensor)
    assert torch.equal(tensor, torch.ones(3))
    alone = (distributed.all_reduce_max(3), distributed.broadcast_object(lambda: 4), distributed.gather(5))
    assert alone == (3, 4, [5])
    with distributed.process_group():
        assert (distributed.world_size(), distributed.rank(), distributed.is_main()) == (1, 0, True)
