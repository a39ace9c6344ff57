"""More images than memory, images from Python, and the examples of docs/scale.md."""

import os
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from capspoe import data, training
from capspoe.errors import DataError, InputError
from capspoe.memory import memory
from capspoe.training import open_images, train
from runs import QUICK, capspoe, options, same_weights

EXAMPLES = Path(__file__).parent.parent / "examples"
PIXELS = np.random.default_rng(0).integers(0, 256, (60, 12, 12, 1), np.uint8)
SMALL = {**QUICK, "limit": None, "autoencoder_epochs": 1, "epochs": 1}


class Stream:
    """Images that are made when asked for."""

    def __init__(self, count=60, change=None):
        self.count, self.change, self.asked = count, change or (lambda k, image: image), 0

    def __len__(self):
        return self.count

    def __getitem__(self, k):
        self.asked += 1
        return self.change(k, PIXELS[k % 60, :, :, 0])


def example(*command: object) -> subprocess.CompletedProcess:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=environment, timeout=300
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_the_example_of_more_images_than_memory(tmp_path):
    """1.4 GB of images for a process that may have 700 MB."""
    done = example(
        sys.executable, EXAMPLES / "more_than_memory.py", "--limit", 700, "--times", 2, "--folder", tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "22,400 images, 1,400 MB, for processes of 700 MB" in done.stdout
    assert done.stdout.endswith("training on it: done\n")
    assert not list(tmp_path.iterdir())


def test_the_example_of_two_processes(tmp_path):
    settings = {**QUICK, "limit": 64, "autoencoder_epochs": 1, "epochs": 1}
    done = example("sh", EXAMPLES / "two_processes.sh", tmp_path, *options(settings))
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"largest relative difference: (\S+) in", done.stdout)[1]) < 1e-3


def test_images_from_python_train_the_network_of_a_file(tmp_path):
    np.save(tmp_path / "images.npy", PIXELS)
    rows = data.open_source(tmp_path / "images.npy").batch(range(50))
    train(tmp_path / "images.npy", tmp_path / "file", quiet=True, **{**SMALL, "limit": 50})
    train(list(rows), tmp_path / "list", quiet=True, **SMALL)
    assert same_weights(tmp_path / "file", tmp_path / "list")
    done = capspoe("train", "digits", "--out", tmp_path / "list", "--resume")
    assert done.returncode == 1
    assert "give them to capspoe.train again" in done.stderr


def test_a_stream_is_read_when_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "IN_MEMORY", 0)
    pairs = Stream(change=lambda k, image: (image, k % 10))
    train(pairs, tmp_path / "stream", quiet=True, **SMALL)
    assert pairs.asked == 1 + 60 + 60 + 60  # shape, fingerprint, a pass of stage 1, codes
    train(PIXELS, tmp_path / "array", quiet=True, **SMALL)
    assert same_weights(tmp_path / "stream", tmp_path / "array")


def test_a_long_stream_leaves_nothing_in_memory():
    source = data.SequenceSource(Stream(50_000))
    tracemalloc.start()
    try:
        for _ in source.batches(512):
            pass
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert source.nbytes > 7_000_000
    assert peak < 2_000_000  # mostly the 8 bytes of each image's place in the order


@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        (iter([1]), InputError, "have no length"),
        ([], InputError, "there are no images"),
        ([np.zeros((9, 9))], DataError, "image 0 has shape .* float64; give uint8"),
        ([np.zeros((9, 9, 2, 2), np.uint8)], DataError, r"give uint8 arrays \(H, W\) or \(H, W, C\)"),
        ([np.zeros((9, 9), np.uint8), np.zeros((9, 8), np.uint8)], DataError, "image 1 has shape"),
    ],
)
def test_images_that_cannot_be_used_are_named(tmp_path, images, error, message):
    with pytest.raises(error, match=message):
        train(images, tmp_path / "run", quiet=True, **SMALL)
    assert not (tmp_path / "run").exists()


def test_images_are_kept_in_memory_only_where_there_is_room(monkeypatch):
    config = training.settings_of_preset().replace(limit=None)
    assert memory() > 1 << 20
    monkeypatch.setattr(training, "memory", lambda: 4 * PIXELS.nbytes)
    assert isinstance(open_images(config, list(PIXELS)), data.source.ArraySource)
    monkeypatch.setattr(training, "memory", lambda: 4 * PIXELS.nbytes - 4)
    assert isinstance(open_images(config, list(PIXELS)), data.SequenceSource)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is that of Linux")
def test_the_limits_of_the_process_count():
    code = "from capspoe.memory import memory; print(memory())"
    shell = f"ulimit -d 600000; {sys.executable} -c '{code}'"
    done = example("sh", "-c", shell)
    assert int(done.stdout) == 600_000 * 1024


@pytest.mark.skipif(not os.path.exists("/proc/self"), reason="processes are looked up as Linux shows them")
def test_worker_processes_end_with_a_parent_that_is_killed():
    code = """
import os, time
from capspoe.data.workers import map_in_order

if __name__ == "__main__":
    results = map_in_order(os.getpgid, [0] * 100, 2)
    next(results)
    import multiprocessing
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        workers = process.stdout.readline().split()
        process.kill()
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)
