"""How many threads compute."""

import threadpoolctl
import torch


def use_threads(count: int) -> None:
    """Let PyTorch, the kernels, BLAS and OpenMP use this many threads, in the whole process.

    The rounding of a matrix product depends on its threads, and the neighbour graph on the rounding of a PCA: the
    number counts for all of them, or a run would depend on the machine that it names a number of threads for.
    """
    torch.set_num_threads(count)
    threadpoolctl.threadpool_limits(count)
