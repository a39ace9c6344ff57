"""Features of photographs of many images, by several threads."""

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np
import torch
from jaxtyping import Float, UInt8

from capspoe.training.views import photo_features
from capspoe.training.views.photos import load_network


class PhotoFeatures:
    """Threads that each compute the features of some images on their own.

    That takes half the CPU time of threads that share each layer: the layers are small. Used in a `with` statement,
    at the end of which PyTorch has its number of threads again.
    """

    def __init__(self) -> None:
        self.threads = torch.get_num_threads()
        self.pool = ThreadPoolExecutor(self.threads, initializer=torch.set_num_threads, initargs=(1,))

    def __enter__(self) -> "PhotoFeatures":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.pool.shutdown(cancel_futures=True)
        torch.set_num_threads(self.threads)

    def of(self, pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n 1280"]:
        """The features of images, as `photo_features` computes them."""
        load_network()  # once, before threads need it
        parts = np.array_split(pixels, min(self.threads, len(pixels)))
        return np.concatenate(list(self.pool.map(photo_features, parts)))
