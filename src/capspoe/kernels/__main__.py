"""`python -m capspoe.kernels` compiles the forward routing kernel and leaves it in numba's cache on disk.

A kernel is compiled for types, not for sizes. So small tensors do, laid out like those of a layer.
"""

import os

import torch

from capspoe.kernels.dispatch import RoutingOptions, cpu_kernels

LOWEST_PRIORITY = 19


def main() -> None:
    torch.set_num_threads(1)
    x_BIM = torch.rand(8, 32, 4)
    w_JNMI = torch.rand(3, 6, 4, 32)
    options = RoutingOptions(iterations=3, normalize="lower", agreement="cosine", sharpness=1.0)
    cpu_kernels().route_relative(x_BIM, w_JNMI, options)


if __name__ == "__main__":
    if hasattr(os, "nice"):  # not on Windows
        os.nice(LOWEST_PRIORITY)
    main()
