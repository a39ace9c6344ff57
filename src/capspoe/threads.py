"""How many threads compute, and how they wait for each other.

Imports nothing heavy: `wait_briefly` must run before PyTorch loads OpenMP.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The threads of OpenMP spin while they wait, which is quickest as long as every thread has a core. Beside another
# program a thread that spins takes the core from the thread it waits for: training took ten times as long. GNU's
# OpenMP counts its turns, LLVM's and Intel's milliseconds. benchmarks/speed/busy.py measured these.
BRIEFLY = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "1"}
# Where one of these is set, the user has decided.
DECIDED = (*BRIEFLY, "OMP_WAIT_POLICY", "KMP_LIBRARY")


def wait_briefly() -> None:
    """Let OpenMP's threads spin only briefly before they sleep, unless the environment says otherwise.

    Has no effect once PyTorch is loaded, and then changes nothing. Numba's threads are no question: the kernels run
    in threads of Python, which sleep while they wait.
    """
    if "torch" in sys.modules or any(name in os.environ for name in DECIDED):
        return
    os.environ.update(BRIEFLY)


def use_threads(count: int) -> None:
    """Let PyTorch, the kernels, BLAS and OpenMP use this many threads, in the whole process.

    The rounding of a matrix product depends on its threads, and the neighbour graph on the rounding of a PCA: the
    number counts for all of them, or a run would depend on the machine that it names a number of threads for.
    """
    import threadpoolctl
    import torch

    torch.set_num_threads(count)
    threadpoolctl.threadpool_limits(count)


@contextmanager
def one_thread_if(small: bool) -> Iterator[None]:
    """Use one thread within the `with` statement if the work is small.

    Operations of microseconds gain nothing from a second thread, and beside another program each of them waits until
    the second thread gets a core. The rule looks at the work only: the same work has the same bits on a busy machine.
    """
    if not small:
        yield
        return
    import threadpoolctl
    import torch

    before = torch.get_num_threads()
    with threadpoolctl.threadpool_limits(1):
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
