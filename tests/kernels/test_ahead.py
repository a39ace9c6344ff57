"""Compiling in the background: what a first call finds in the cache, and when nothing is to be compiled."""

import os
import subprocess
import sys

import pytest
import torch
from tests.kernels.test_routing import inputs

from capspoe import kernels
from capspoe.kernels import ahead
from capspoe.model.routing import route


@pytest.fixture(autouse=True)
def nothing_started():
    ahead._start.cache_clear()
    yield
    ahead.take_over()
    ahead._start.cache_clear()


@pytest.fixture
def started(monkeypatch):
    """Commands that were started instead of a process."""
    commands = []

    def start(command, **options):
        commands.append(command)
        raise OSError("no process in this test")

    monkeypatch.setattr(subprocess, "Popen", start)
    return commands


def test_a_call_takes_over_from_the_background(monkeypatch):
    x, W = inputs((5, 20, 3, 4, 6), 1)
    right = route(x, W)
    monkeypatch.setattr(ahead, "_in_cache", lambda: False)
    kernels.compile_ahead()
    process = ahead._start()
    assert process.poll() is None
    ahead.take_over()
    assert process.returncode is not None
    assert torch.equal(route(x, W).z, right.z)


def test_one_process_is_enough(monkeypatch, started):
    monkeypatch.setattr(ahead, "_in_cache", lambda: False)
    kernels.compile_ahead()
    kernels.compile_ahead()
    assert started == [[sys.executable, "-m", "capspoe.kernels"]]


def test_nothing_is_compiled_without_need(monkeypatch, started):
    x, W = inputs((5, 20, 3, 4, 6), 1)
    route(x, W)  # in the cache from here on
    kernels.compile_ahead()
    monkeypatch.setattr(ahead, "_in_cache", lambda: False)
    with kernels.use("reference"):
        kernels.compile_ahead()
    monkeypatch.setenv("LOCAL_RANK", "1")  # the first process of the machine compiles for all
    kernels.compile_ahead()
    assert started == []


def run(program, **environment):
    settings = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", program], env=settings, check=True, capture_output=True, text=True)


LAYER = """
import torch
from capspoe import CapsuleLayer
with torch.no_grad():
    CapsuleLayer((144, 8), (20, 16))(torch.rand(128, 144, 8))
"""


def test_the_background_compiles_what_a_layer_calls():
    done = run(
        "from capspoe.kernels import __main__, routing\n"
        "__main__.main()\n"
        "compiled = len(routing.pack.signatures), len(routing.route.signatures)\n"
        f"{LAYER}\n"
        "assert compiled == (len(routing.pack.signatures), len(routing.route.signatures)), compiled\n"
        "print(*compiled)"
    )
    assert done.stdout.split() == ["2", "1"]


@pytest.mark.slow
def test_a_layer_finds_the_kernel_in_the_cache(tmp_path):
    done = run(
        "from capspoe import kernels\n"
        "from capspoe.kernels import ahead, routing\n"
        "kernels.compile_ahead()\n"
        "assert ahead._start().wait() == 0\n"
        f"{LAYER}\n"
        "for function in (routing.pack, routing.route):\n"
        "    assert not function.stats.cache_misses\n",
        NUMBA_CACHE_DIR=str(tmp_path),
    )
    assert done.stdout == done.stderr == ""
