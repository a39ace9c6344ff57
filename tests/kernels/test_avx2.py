"""The kernels as a machine with AVX2 compiles them: eight floats in a register instead of sixteen."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import llvmlite.binding as llvm
features = {**llvm.get_host_cpu_features(), "avx512f": False}
llvm.get_host_cpu_features = lambda: features

import torch
from capspoe import kernels
from capspoe.model.routing import reference, route
from capspoe.kernels.panel import LANES

assert LANES == 8
for normalize, agreement in (("lower", "cosine"), ("upper", "dot")):
    x, W = torch.randn(9, 50, 5), torch.randn(6, 50, 7, 5)
    found, right = [], []
    for function, out in ((route, found), (reference, right)):
        with kernels.use("kernel" if function is route else "reference"):
            inputs = [tensor.clone().requires_grad_() for tensor in (x, W)]
            c, z = function(*inputs, 3, normalize, agreement)
            (c.sin().sum() + z.sin().sum()).backward()
            out.extend([c, z, *(tensor.grad for tensor in inputs)])
    for here, there in zip(found, right, strict=True):
        torch.testing.assert_close(here, there, rtol=1e-4, atol=1e-4 * float(there.abs().max()))
"""


@pytest.mark.slow
def test_forward_and_backward_are_the_references(tmp_path):
    settings = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, env={**os.environ, **settings})
