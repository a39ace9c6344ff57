"""What the kernels use of PyTorch without a public interface. Each failure says what has changed."""

import sys

import pytest
import torch

from capspoe.kernels import private


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch brings GNU OpenMP on Linux only")
def test_pytorchs_openmp_can_be_paused():
    library = private.openmp()
    assert library is not None, (
        f"PyTorch {torch.__version__} has no libgomp* in torch/lib any more: kernels/private.py looks there for what "
        "pauses PyTorch's threads. Without it training steps are slower, and no result changes."
    )
    assert hasattr(library, private.PAUSE), (
        f"the OpenMP library of PyTorch {torch.__version__} has no {private.PAUSE}: kernels/private.py calls it to "
        "pause PyTorch's threads. Without it training steps are slower, and no result changes."
    )


@pytest.mark.skipif(sys.platform != "linux", reason="PyTorch brings GNU OpenMP on Linux only")
def test_pytorchs_threads_end_and_come_back():
    threads_before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        x = torch.rand(1000, 1000)
        expected = x.sin()
        working = count_threads()
        private.pause_openmp()
        paused = count_threads()
        assert paused < working, (
            f"{private.PAUSE} no longer ends the threads of PyTorch {torch.__version__}: {working} before, {paused} "
            "after. Perhaps torch/lib/libgomp* is not the library it computes with."
        )
        assert torch.equal(x.sin(), expected)
        assert count_threads() == working
    finally:
        torch.set_num_threads(threads_before)


def count_threads() -> int:
    """Threads of this process, by the operating system."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("Threads:"):
                return int(line.split()[1])
    raise AssertionError("no thread count")
