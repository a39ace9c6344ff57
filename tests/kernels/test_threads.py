"""Threads, processes and the functions that numba keeps on disk."""

import contextlib
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.kernels.test_routing import inputs

from capspoe import kernels
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import route


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def results(normalize, count, batch=37):
    """Routing of a layer, and the gradients of routing."""
    layer = CapsuleLayer((50, 3), (4, 5), normalize=normalize, initial_std=0.3, seed=0)
    x = torch.rand(batch, 50, 3, generator=torch.Generator().manual_seed(2))
    with threads(count), kernels.use("kernel"):
        with torch.no_grad():
            routed = layer(x)
        leaves = [layer.W.detach().requires_grad_(), x.requires_grad_()]
        z = route(leaves[1], leaves[0], 3, normalize).z
        return [*routed, z, *torch.autograd.grad(z.square().sum(), leaves)]


@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_any_number_of_threads_gives_the_same_bits(normalize):
    first = results(normalize, 1)
    for count in (1, 2, 3, 5, 5, 5):
        again = results(normalize, count)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def _route_in_child(connection, x, W):
    connection.send(route(x, W).z.numpy())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_kernels_run_in_a_child_process(method):
    x, W = inputs((40, 100, 4, 5, 6), 1)
    right = route(x, W).z  # the parent has threads by now
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=_route_in_child, args=(there, x, W))
    child.start()
    assert here.poll(100)
    found = here.recv()
    child.join()
    assert torch.equal(torch.from_numpy(found), right)


def test_kept_kernels_are_those_of_all_the_files(tmp_path):
    """A change in one file must not leave functions of another file in numba's cache that contain the old code."""
    package = tmp_path / "capspoe"
    shutil.copytree(
        Path(kernels.__file__).parent.parent, package, ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    program = (
        "import numpy as np; from capspoe.kernels import routing; z = np.zeros((1, 2, 4), np.float32);"
        "ones = np.ones((1, 1, 2, 4 * routing.LANES), np.float32); routing.combine(ones, ones[:, :, 0], 3.0, z);"
        "print(z[0, 0, 0] / routing.LANES)"
    )

    def run():
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    assert run() == 3
    file = package / "kernels" / "panel.py"
    text = file.read_text()
    changed = text.replace("a = b.fadd(_pick(b, a, lower)", "a = b.fsub(_pick(b, a, lower)")
    assert changed != text
    file.write_text(changed)
    assert run() == 0
